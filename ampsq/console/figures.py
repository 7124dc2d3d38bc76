"""What the console shows; `ampsq.administration.figures` reads it."""

from ampsq.administration.figures import Ages, Figures, QueueFigures, measure, read_figures

__all__ = ["Ages", "Figures", "QueueFigures", "measure", "read_figures"]
