"""The command `kernel-assistant lint [PATH …]`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from kernel_assistant.cli.common import json_option, settings_for
from kernel_assistant.cli.text import say_warning, styled
from kernel_assistant.errors import EXIT_GATE, EXIT_OK, UsageError
from kernel_assistant.session.reporting.gains import machine_here
from kernel_assistant.source.build import read_text
from kernel_assistant.source.lint import RULES, Hint, find_hints

#: Folders with the code of others, or without code.
_SKIPPED = {"__pycache__", "node_modules", "site-packages", "dist-packages", "build", "dist", "venv"}
_CODES = tuple(rule.code for rule in RULES)


@click.command("lint")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[PATH]…")
@click.option("--ignore", metavar="CODES", default="", help="Codes to leave out, with commas.")
@json_option
def lint_command(paths: tuple[Path, ...], ignore: str, as_json: bool) -> int:
    """Point at code in modules that is slower than it has to be, without running it. Exit code 1 if there is some.

    PATH is a file or a folder (default: this one). A comment `# kernel-assistant: ignore[KA002]` at the line, or above
    the class, keeps one quiet.
    """
    paths = paths or (Path(),)
    settings = settings_for(paths[0])
    machine, skipped = machine_here(settings), _codes(ignore).union(settings.ignore_hints)
    hints: list[tuple[Path, Hint]] = []
    for path in _files(paths):
        try:
            hints += [(path, hint) for hint in find_hints(read_text(path), machine, skipped)]
        except UsageError as error:
            say_warning(error.cause)
    if as_json:
        print(json.dumps([{"path": str(path), **asdict(hint), "href": hint.href} for path, hint in hints]))
    else:
        for path, hint in hints:
            print(f"{path}:{hint.line}:{hint.column + 1}: {styled(hint.code, bold=True)} {hint.message}")
        print(_summary(hints))
    return EXIT_GATE if hints else EXIT_OK


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        if path.is_file():
            yield path
            continue
        for one in sorted(path.rglob("*.py")):
            inside = one.relative_to(path).parts[:-1]
            if not any(part in _SKIPPED or part.startswith(".") for part in inside) and one.is_file():
                yield one


def _codes(text: str) -> frozenset[str]:
    """The codes of hints in `text`, separated by commas. Raises UsageError for an unknown code."""
    codes = frozenset(code.strip().upper() for code in text.split(",") if code.strip())
    for code in sorted(codes.difference(_CODES)):
        raise UsageError(f"there is no hint {code}", f"the codes are {', '.join(_CODES)}")
    return codes


def _summary(hints: list[tuple[Path, Hint]]) -> str:
    if not hints:
        return "no hints"
    counts = Counter(hint.code for _, hint in hints)
    each = ", ".join(f"{counts[rule.code]} × {rule.name}" for rule in RULES if counts[rule.code])
    return f"{len(hints)} hint{'s' if len(hints) > 1 else ''}: {each}"
