"""Checks of which files can be read, written and seen."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

from kernel_assistant.sandbox.contract import SandboxLimits
from tests.sandbox.checks.bench import ProbeFolders, ProbeResult

MIB = 1 << 20
ODD_NAME = " a\nb\t ü 核 \udcff '\"$(id)`id`* -x"


def hidden(bench: ProbeFolders) -> Iterator[ProbeResult]:
    folders = [os.path.dirname(path) for path in bench.secrets]
    seen = bench.probe("read_each", [*bench.secrets, *folders, os.path.expanduser("~")])
    leaked = [text for text in seen if bench.token in text]
    yield ProbeResult("files_hidden", not leaked, f"{len(leaked)} secrets read")
    visible = bench.probe("exists_each", bench.secrets)
    yield ProbeResult("metadata_hidden", not any(visible), f"{sum(visible)} secrets found")


def protected(bench: ProbeFolders) -> Iterator[ProbeResult]:
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
    written = [path for path, error in zip(paths, errors, strict=False) if not error]
    yield ProbeResult("files_protected", held, f"written: {written}")
    if not intact:
        bench.restore()


def metadata(bench: ProbeFolders) -> Iterator[ProbeResult]:
    before = os.stat(bench.shown_file)
    bench.probe("change_metadata", bench.shown_file)
    after = os.stat(bench.shown_file)
    same = (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns)
    attributes = os.listxattr(bench.shown_file)
    yield ProbeResult("metadata_protected", same and not attributes, f"mode {after.st_mode:o}, attributes {attributes}")


def temporary(bench: ProbeFolders) -> Iterator[ProbeResult]:
    path = f"/tmp/{bench.token}"
    (error,) = bench.probe("write_each", [path])
    outside = os.path.lexists(path)
    if outside:
        os.unlink(path)
    yield ProbeResult("private_tmp", not error and not outside, error or ("seen outside" if outside else ""))
    folder = tempfile.mkdtemp(dir="/tmp")
    written = bench.probe("fill_folder", folder, 48 * MIB, limits=SandboxLimits(tmp_bytes=16 * MIB))
    shutil.rmtree(folder)
    yield ProbeResult("tmp_size", written <= 16 * MIB, f"{written} bytes")


def odd_names(bench: ProbeFolders) -> Iterator[ProbeResult]:
    """Checks unusual file names: a path as an argument, below a workspace that has an unusual name itself."""
    folder = os.path.join(bench.top, ODD_NAME)
    os.mkdir(folder)
    path = os.path.join(folder, ODD_NAME)
    arguments = [ODD_NAME, "", "--", "-I", "$HOME", "é" * 100]
    answer = bench.probe("names", path, *arguments, workspace=folder)
    with open(path, encoding="ascii") as file:
        arrived = answer == arguments and file.read() == "here"
    yield ProbeResult("names", arrived, f"{answer!r}")


def largest_file(bench: ProbeFolders) -> Iterator[ProbeResult]:
    limits = SandboxLimits(file_bytes=8 * MIB)
    grown = bench.probe("grow_file", os.path.join(bench.inside, "large"), 32 * MIB, limits=limits)
    yield ProbeResult("file_size", 0 < grown <= 8 * MIB, f"{grown} bytes")
