"""What can be read, written and found."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

from kernel_assistant.sandbox.checks.bench import Bench, Finding
from kernel_assistant.sandbox.contract import Limits

MIB = 1 << 20
ODD_NAME = " a\nb\t ü 核 \udcff '\"$(id)`id`* -x"


def hidden(bench: Bench) -> Iterator[Finding]:
    folders = [os.path.dirname(path) for path in bench.secrets]
    seen = bench.probe("read_each", [*bench.secrets, *folders, os.path.expanduser("~")])
    leaked = [text for text in seen if bench.token in text]
    yield Finding("files_hidden", not leaked, f"{len(leaked)} secrets read")
    found = bench.probe("exists_each", bench.secrets)
    yield Finding("metadata_hidden", not any(found), f"{sum(found)} secrets found")


def protected(bench: Bench) -> Iterator[Finding]:
    name = f"made-inside-{bench.token}"
    outside = [bench.outside, bench.shown, "/", "/usr", "/usr/lib", "/etc", "/dev", "/dev/shm", "/run", "/var/tmp"]
    paths = [os.path.join(folder, name) for folder in (*outside, *([bench.at_home] if bench.at_home else []))]
    errors = bench.probe("write_each", [*paths, bench.shown_file, *bench.secrets])
    left_alone = bench.probe("spoil", bench.shown_file)
    left_alone += [error for path in bench.secrets for error in bench.probe("spoil", path)]
    intact = bench.is_intact()
    made = [path for path in paths if os.path.lexists(path)]
    for path in made:
        os.unlink(path)
    held = all(errors) and all(left_alone) and intact and not made
    yield Finding(
        "files_protected", held, f"written: {[path for path, e in zip(paths, errors, strict=False) if not e]}"
    )
    if not intact:
        bench.restore()


def metadata(bench: Bench) -> Iterator[Finding]:
    before = os.stat(bench.shown_file)
    bench.probe("change_metadata", bench.shown_file)
    after = os.stat(bench.shown_file)
    same = (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns)
    attributes = os.listxattr(bench.shown_file)
    yield Finding("metadata_protected", same and not attributes, f"mode {after.st_mode:o}, attributes {attributes}")


def temporary(bench: Bench) -> Iterator[Finding]:
    path = f"/tmp/{bench.token}"
    (error,) = bench.probe("write_each", [path])
    outside = os.path.lexists(path)
    if outside:
        os.unlink(path)
    yield Finding("private_tmp", not error and not outside, error or ("seen outside" if outside else ""))
    folder = tempfile.mkdtemp(dir="/tmp")
    written = bench.probe("fill_folder", folder, 48 * MIB, limits=Limits(tmp_bytes=16 * MIB))
    shutil.rmtree(folder)
    yield Finding("tmp_size", written <= 16 * MIB, f"{written} bytes")


def odd_names(bench: Bench) -> Iterator[Finding]:
    """The path goes in as an argument, through a workspace whose own name is odd."""
    folder = os.path.join(bench.top, ODD_NAME)
    os.mkdir(folder)
    path = os.path.join(folder, ODD_NAME)
    arguments = [ODD_NAME, "", "--", "-I", "$HOME", "é" * 100]
    answer = bench.probe("names", path, *arguments, workspace=folder)
    arrived = answer == arguments and _content(path) == "here"
    yield Finding("names", arrived, f"{answer!r}")


def largest_file(bench: Bench) -> Iterator[Finding]:
    limits = Limits(file_bytes=8 * MIB)
    grown = bench.probe("grow_file", os.path.join(bench.inside, "large"), 32 * MIB, limits=limits)
    yield Finding("file_size", 0 < grown <= 8 * MIB, f"{grown} bytes")


def _content(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
