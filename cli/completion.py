"""``ampsq completion``."""

from __future__ import annotations

import click

__all__ = ["completion"]

_EPILOG = """\b
Names of queues, topics, views, actions and instances are asked of the server, for a second at most; without --url and
AMPSQ_URL of the embedded one, if it runs.

\b
Examples:
  ampsq completion bash > ~/.local/share/bash-completion/completions/ampsq
  ampsq completion zsh > ~/.zfunc/_ampsq                 # a folder of fpath
  ampsq completion fish > ~/.config/fish/completions/ampsq.fish
"""


@click.command(epilog=_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and names in a shell."""
    from click.shell_completion import get_completion_class

    from ampsq.cli.main import program

    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"this click does not know {shell}")
    print(kind(program, {}, "ampsq", "_AMPSQ_COMPLETE").source())
