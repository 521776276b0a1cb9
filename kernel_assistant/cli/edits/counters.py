"""`kernel-assistant counters -- COMMAND`: how often applied kernels ran in a program, and why they did not."""

from __future__ import annotations

import json

import click

from kernel_assistant.cli.common import json_option
from kernel_assistant.cli.text import say_warning, table
from kernel_assistant.session.reporting.call_counts import CallCounts, run_counted


@click.command("counters", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
@json_option
def counters_command(command: tuple[str, ...], as_json: bool) -> int:
    """Run COMMAND, such as `python script.py` or `pytest tests`, and say how often applied kernels ran in all of its
    processes, how often the original did, and for which reasons.

    The program runs as it always does; its exit code is ours. With --json its output goes to stderr.
    """
    exit_code, counts = run_counted(command, quiet=as_json)
    if as_json:
        print(json.dumps({"exit_code": exit_code, "classes": [document(one) for one in counts]}))
        return exit_code
    if exit_code:
        say_warning(f"the program ended with exit code {exit_code}; what it did until then follows")
    if counts:
        print(
            "\n".join(
                ["", *table(("class", "kernels ran", "original ran", "because of"), [cells(one) for one in counts])]
            )
        )
    else:
        print("\nno class with applied kernels was called")
    return exit_code


def cells(one: CallCounts) -> tuple[str, ...]:
    label = f"{one.package.name}:{one.class_name}"
    if one.unused:
        return (label, "never", "always", one.unused)
    reasons = sorted(one.fallbacks.items(), key=lambda item: -item[1])
    words = ", ".join(f"{reason} ({count})" for reason, count in reasons)
    return (label, str(one.kernel), str(sum(one.fallbacks.values())), words)


def document(one: CallCounts) -> dict[str, object]:
    return {
        "package": str(one.package),
        "class": one.class_name,
        "kernel": one.kernel,
        "fallbacks": one.fallbacks,
        "unused": one.unused,
    }
