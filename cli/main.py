"""The program ``ampsq``: a group whose commands are imported when they are invoked.

So the list of commands costs neither Redis nor pydantic nor rich: their names and short helps stand here, and
a test holds them against the commands.
"""

from __future__ import annotations

import contextlib
import difflib
import gc
import os
import select
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

import click

from ampsq import __version__
from ampsq.base.errors import AmpsqError
from ampsq.base.shutdown import ENDS_WITHIN, end_process_within
from ampsq.cli.help_text import fit_help
from ampsq.cli.options import CommandSettings, connection_options
from ampsq.cli.output import in_commands

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from click.shell_completion import CompletionItem

__all__ = ["COMMANDS", "EXIT_CODES", "main", "program"]

#: Command -> short help. A command is the click command of its name in the module of its name, with _ for -.
COMMANDS: Final[Mapping[str, str]] = {
    "up": "Start the embedded server and keep it until Ctrl-C.",
    "demo": "See queues at work.",
    "init": "Write a folder with a queue, its handler, a test and a compose file, which runs by two commands.",
    "apply": "Define an instance, its topics, queues, views, actions, destinations and the rest from a file.",
    "config": "Check, compare and export configuration files, and give their schema.",
    "topics": "List the topics, or show one with all that is known of it.",
    "readers": "List the subscriptions to topics with their use of the limits of slow clients.",
    "keys": "Show which keys and which partitions get the most of the newest messages.",
    "trim": "Remove messages beyond a topic's retention that nobody needs.",
    "queues": "List the queues with their figures, or show one.",
    "groups": "Show the groups of a queue, or let one go on, pause it, or empty it.",
    "explain": "Say why a message is where it is.",
    "history": "Tell a message's life as a timeline.",
    "top": "Watch queues, subscriptions, progress and links live, or one queue with all that is known of it.",
    "doctor": "Check server, coordinator, queues, links and logs: each fault, why it matters, and how to repair it.",
    "check": "Compare queues with log and journal, and repair differences.",
    "sow": "Look at the available messages of a queue, the rows of a view, or the records of a topic with a key.",
    "sow-delete": "Delete records of a topic with a key, by one of --key, --filter and --data.",
    "views": "List the views with their sources, or show one's definition.",
    "actions": "List the actions with their counts, or show one; retry or drop failed events.",
    "publishers": "List the publishers that have a name: their last message, and the client that is logged on.",
    "replication": "Show links to other instances with their lag, and who owns the messages of shared queues.",
    "publish": "Publish one message, or one a line of a file.",
    "subscribe": "Print the messages of a queue as they come.",
    "subscribe-topic": "Print the messages of a topic as they come; nothing is leased, and nothing taken from a queue.",
    "tail": "Watch the messages of a queue or a topic as they come in; nothing is taken and nothing leased.",
    "ack": "Acknowledge, cancel or expire messages by bookmark or filter.",
    "dead-letters": "Look at dead letters, edit them, put them back where they came from.",
    "worker": "Handle the messages of a queue with a Python function, or those of several with an ampsq.App.",
    "coordinator": "Run the coordinator: time-outs, dead letters and replication for your own server.",
    "coordinators": "List the coordinators of the server: which instances each one has, and what is late.",
    "upgrade": "Turn instances that the release before stored into this release's format.",
    "functions": "List, load and remove server functions, which cost a server less than scripts.",
    "acl": "Print the access rules of a server's user by its role: publisher, worker, gateway and others.",
    "gateway": "Serve HTTP and WebSockets to clients that hold no credentials of the server.",
    "bench": "Measure publish, delivery, latency, memory and growth beside raw Redis Streams, and kinds of queues.",
    "completion": "Print the script that completes commands, options and names in a shell.",
    "version": "Show the version.",
}

#: Exit code -> what it says.
EXIT_CODES: Final[Mapping[int, str]] = {
    0: "done; also up, worker, coordinator, gateway, top, tail and --watch when they are stopped",
    1: 'refused or failed: "Error: ..." on standard error; doctor and check: something is wrong',
    2: "the command line is wrong, or names an instance that is not there",
    3: "not confirmed: nothing was done (--yes does it without asking)",
    130: "interrupted by Ctrl-C",
    143: "ended by SIGTERM",
}
#: Commands whose processes run code of others, which may measure with OpenTelemetry.
_RUN_OTHERS_CODE: Final = frozenset(("worker", "demo", "bench"))
_TELEMETRY: Final = "opentelemetry"
#: New objects after which Python looks for garbage; by default it does so after 700.
_COLLECTS_AFTER: Final = 100_000
_EPILOG = """\b
Examples:
  ampsq up                                         # in a terminal of its own
  ampsq apply queues.yaml                          # shows what changes, and asks
  ampsq publish orders '{"id": 1, "price": 12.5}'
  ampsq subscribe work --count 1
  ampsq queues --json | jq .depth

\b
Exit codes:
CODES

\b
Completion in bash (zsh, fish alike):
  eval "$(ampsq completion bash)"
"""


_CODES: Final = "\n".join(f"  {code:<4} {text}" for code, text in EXIT_CODES.items())


class _Commands(click.Group):
    """Imports the module of a command when the command is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in _RUN_OTHERS_CODE:
            _leave_out_telemetry()
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"ampsq.cli.{name}"), name)
        return fit_help(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        # A group's own would import every command for its help.
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"allowed: {', '.join(COMMANDS)}"
            ctx.fail(f"no such command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except AmpsqError as error:
            raise click.ClickException(in_commands(str(error))) from error
        except BrokenPipeError as error:
            if not _is_unread():
                # It was another pipe: a connection that somebody closed.
                raise click.ClickException(f"a connection broke: {error}") from error
            # Whoever read our output has seen enough. Nothing may be flushed into the broken pipe at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        return result


def _leave_out_telemetry() -> None:
    """Let redis-py, which is not imported yet, find no OpenTelemetry: it would be imported with it, and never used.

    Where it is installed, that takes a quarter of the start of a command.
    """
    if not {"redis", _TELEMETRY} & sys.modules.keys():
        # What is None there cannot be imported: https://docs.python.org/3/reference/import.html#the-module-cache
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # as Python has it


def _is_unread() -> bool:
    """Return whether nobody reads our output any more."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            poll.register(stream.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


@click.group(
    cls=_Commands, epilog=_EPILOG.replace("CODES", _CODES), context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="ampsq %(version)s")
@connection_options
@click.pass_context
def program(ctx: click.Context, settings: CommandSettings) -> None:
    """Message queues on plain Redis or Valkey: pushed, leased, acknowledged.

    Without --url and AMPSQ_URL, commands use the embedded server in ./.ampsq, which runs as long as one of
    them does and keeps its data. The options below may also follow the command.
    """
    ctx.obj = settings


fit_help(program)


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    """End as Ctrl-C does, so that subscriptions give back what they hold."""
    end_process_within(ENDS_WITHIN, 128 + number)
    sys.exit(128 + number)


def main() -> NoReturn:
    """Run the program."""
    # Importing makes objects that stay; looking through them for garbage, again and again, takes a tenth of a start.
    gc.set_threshold(_COLLECTS_AFTER)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = program.main(prog_name="ampsq", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)
