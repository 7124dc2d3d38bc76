"""What the console shows; `ampsq.figures` reads it."""

from ampsq.figures import Ages, Figures, QueueFigures, measure, read_figures

__all__ = ["Ages", "Figures", "QueueFigures", "measure", "read_figures"]
