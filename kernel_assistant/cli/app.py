"""The `kernel-assistant` command: the list of its subcommands, and the conversion of every failure to one line of
text and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

import kernel_assistant
from kernel_assistant.cli.text import say_error
from kernel_assistant.errors import (
    EXIT_CANCELLED,
    EXIT_INTERNAL,
    EXIT_OK,
    EXIT_USAGE,
    KernelAssistantError,
)

#: Command → (module, its line in the help): nothing of a command is imported to show the help.
_COMMANDS = {
    "optimize": ("modules.optimize", "Find a faster kernel for a module."),
    "scan": ("modules.scan", "Run a program and rank its modules by what could be gained."),
    "lint": ("modules.lint", "Point at code in modules that is slower than it has to be."),
    "draft": ("modules.draft", "Draft the inputs of a class that declares none."),
    "verify": ("modules.check", "Check a candidate against its reference."),
    "profile": ("modules.check", "Time a candidate against its reference."),
    "confirm": ("jobs.jobs", "Verify and measure in full what a job found."),
    "apply": ("edits.edit", "Write a job's kernels into the user's file."),
    "undo": ("edits.edit", "Take an applied edit back."),
    "counters": ("edits.compare", "Run a program and say how often applied kernels ran."),
    "compare": ("edits.compare", "Time a scanned program without and with applied kernels."),
    "check": ("edits.applied", "Verify and time applied kernels again."),
    "export": ("edits.edit", "Write a job's kernels for use without this tool."),
    "jobs": ("jobs.jobs", "List jobs: running, waiting, interrupted, newest."),
    "attach": ("jobs.jobs", "Watch a job; an interrupted one goes on."),
    "say": ("jobs.jobs", "Tell the model of a running job something."),
    "cancel": ("jobs.jobs", "Stop a job and keep what it found."),
    "history": ("jobs.jobs", "List what was done, newest first."),
    "show": ("jobs.show", "Report of one job."),
    "serve": ("services.serve", "Serve a language model on this machine."),
    "models": ("services.models", "Language models: list, use, add, remove, info."),
    "train": ("services.train", "Train a model: all stages by a recipe, or one."),
    "tui": ("services.tui", "Modules, jobs, results and devices on one screen."),
    "lsp": ("services.lsp", "Serve an editor."),
    "config": ("machine.config", "Settings: what holds, and where it comes from."),
    "mcp": ("services.mcp", "Serve coding agents over the Model Context Protocol."),
    "doctor": ("machine.doctor", "What was found, what is missing, how to get it."),
    "host": ("machine.host", "The session host: status, stop."),
}


class _LazyGroup(click.Group):
    """A click group that imports a command's module only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"kernel_assistant.cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 result, 1 gate not met, 2 bad use, 3 something missing, 4 our failure, 130 cancelled.",
)
@click.version_option(kernel_assistant.__version__, prog_name="kernel-assistant", help="Version of this program.")
def cli() -> None:
    """Make a slow PyTorch module faster with kernels that are verified and measured on this machine."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code. An internal error is reported in one line; its traceback goes to a
    file."""
    try:
        code: Any = cli.main(args=argv, prog_name="kernel-assistant", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return EXIT_USAGE
    except click.UsageError as error:
        say_error(error.format_message(), _help_hint(error))
        return EXIT_USAGE
    except click.ClickException as error:
        say_error(error.format_message(), "kernel-assistant --help")
        return EXIT_USAGE
    except KernelAssistantError as error:
        say_error(error.cause, error.next_step)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return EXIT_CANCELLED
    except (BrokenPipeError, SystemExit):
        # Click turns a broken pipe into SystemExit, and nothing else in this mode.
        _quiet_pipe()
        return EXIT_OK
    except Exception as error:  # noqa: BLE001 - the last boundary: our bug becomes one line, its traceback a file
        say_error(f"internal {type(error).__name__}: {error}", f"report this with {_keep_traceback()}")
        return EXIT_INTERNAL
    return code if isinstance(code, int) else EXIT_OK


def _help_hint(error: click.UsageError) -> str:
    return f"{error.ctx.command_path} --help" if error.ctx else "kernel-assistant --help"


def _quiet_pipe() -> None:
    """Sends later output to the null device. Called after the reader of stdout (`head`, a closed pager) has ended:
    otherwise the interpreter would report an error at exit.
    """
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())


def _keep_traceback() -> str:
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="kernel-assistant-", suffix=".txt", delete=False) as file:
        traceback.print_exc(file=file)
    return file.name
