"""Tools for the files of the workspace."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kernel_assistant.agent.tools.base import Tool, ToolContext, ToolError, shortened
from kernel_assistant.agent.tools.shell import run_inside
from kernel_assistant.records.codec import Record

MAX_LINES = 400
MAX_READ = 16_000
MAX_FOUND = 60
MAX_LINE = 300
SEARCH_SECONDS = 10.0

Path = Annotated[str, Meta(description="path of a file, relative to the workspace")]


class ListArguments(Record, frozen=True, kw_only=True):
    """List the files of the workspace with their sizes in bytes."""

    folder: Annotated[str, Meta(description="folder to list, '.' for everything")] = "."


class ReadArguments(Record, frozen=True, kw_only=True):
    """Read a text file, with line numbers; at most 400 lines a call."""

    path: Path
    first_line: Annotated[int, Meta(description="first line, from 1", ge=1)] = 1


class WriteArguments(Record, frozen=True, kw_only=True):
    """Make a file, or replace all of it."""

    path: Path
    text: Annotated[str, Meta(description="the whole new content")]


class EditArguments(Record, frozen=True, kw_only=True):
    """Replace a piece of text that occurs exactly once in a file."""

    path: Path
    old: Annotated[str, Meta(description="text to replace, exactly as it stands there, whitespace included")]
    new: Annotated[str, Meta(description="text in its place")]


class SearchArguments(Record, frozen=True, kw_only=True):
    """Find lines that match an extended regular expression, at most 60 of them."""

    pattern: Annotated[str, Meta(description="regular expression, matched line by line")]
    folder: Annotated[str, Meta(description="folder to search, '.' for everything")] = "."


def list_files(arguments: ListArguments, context: ToolContext) -> str:
    entries = context.workspace.files(arguments.folder)
    return "\n".join(f"{entry.path} {entry.size}" for entry in entries) or "no files"


def read_file(arguments: ReadArguments, context: ToolContext) -> str:
    lines = context.workspace.read(arguments.path).splitlines()
    first = arguments.first_line
    shown = lines[first - 1 : first - 1 + MAX_LINES]
    if not shown:
        return f"{arguments.path} has {len(lines)} lines"
    text = "\n".join(f"{number}: {line}" for number, line in enumerate(shown, first))
    more = len(lines) - (first - 1 + len(shown))
    return shortened(text, MAX_READ) + (f"\n[{more} more lines]" if more else "")


def write_file(arguments: WriteArguments, context: ToolContext) -> str:
    context.workspace.write(arguments.path, arguments.text)
    return f"wrote {arguments.path}, {len(arguments.text.splitlines())} lines"


def edit_file(arguments: EditArguments, context: ToolContext) -> str:
    text = context.workspace.read(arguments.path)
    count = text.count(arguments.old) if arguments.old else 0
    if count != 1:
        hint = "copy it from the file" if count == 0 else "add lines around it until it occurs once"
        raise ToolError(f"edit: the old text occurs {count} times in {arguments.path}; {hint}")
    context.workspace.write(arguments.path, text.replace(arguments.old, arguments.new))
    return f"edited {arguments.path} at line {text[: text.index(arguments.old)].count(chr(10)) + 1}"


def search_files(arguments: SearchArguments, context: ToolContext) -> str:
    context.workspace.files(arguments.folder)  # refuses what is not a folder of the workspace
    # grep, in the sandbox: it ends after a while whatever the pattern, and follows no links.
    argv = ("grep", "-rnIE", "-m", str(MAX_FOUND), "-e", arguments.pattern, "--", arguments.folder or ".")
    done = run_inside(argv, context, SEARCH_SECONDS)
    if done.timed_out or done.returncode > 1:
        message = done.stderr.decode(errors="replace").strip()
        raise ToolError(f"search: {message[:MAX_LINE] or 'took too long'}")
    matches = done.stdout.decode(errors="replace").splitlines()
    more = [f"[{len(matches) - MAX_FOUND} more]"] if len(matches) > MAX_FOUND else []
    return "\n".join([line[:MAX_LINE] for line in matches[:MAX_FOUND]] + more) or "no match"


TOOLS = (
    Tool("list", ListArguments, list_files),
    Tool("read", ReadArguments, read_file),
    Tool("write", WriteArguments, write_file),
    Tool("edit", EditArguments, edit_file),
    Tool("search", SearchArguments, search_files),
)
