"""A cache of the binaries that tests compile: the same text, flags and compiler give the same binary.

ccache does not cache a candidate, because it is compiled and linked in one step.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from functools import lru_cache
from pathlib import Path

from kernel_assistant.targets import cpu

#: Read before a test's environment is made clean.
FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kernel-assistant-tests")
#: What nobody has asked for so long goes.
DAYS = 14
DAY_SECONDS = 24 * 3600
TEXTS = (".cpp", ".cu", ".h", ".cuh", ".hpp", ".inc")


def build(argv: list[str], folder: Path, output: str) -> str:
    """Runs a compiler in `folder`, unless its result is in the cache. The key covers its source files and the files in
    the folders of -I, and nothing else. Returns its output, empty if the result was cached. Raises AssertionError if it
    fails.
    """
    kept = FOLDER / "compiled" / _key(argv, folder, output)
    try:
        # Never over a file that this process may have loaded.
        (folder / output).unlink(missing_ok=True)
        shutil.copyfile(kept, folder / output)
        kept.touch()
        return ""
    except FileNotFoundError:
        pass
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as partial:
        partial.write((folder / output).read_bytes())
    os.replace(partial.name, kept)
    return done.stdout + done.stderr


def forget_old() -> None:
    """Deletes old entries at the end of a run."""
    before = time.time() - DAYS * DAY_SECONDS
    for path in FOLDER.rglob("*"):
        try:
            if path.is_file() and path.stat().st_mtime < before:
                path.unlink()
        except FileNotFoundError:
            continue


def _key(argv: list[str], folder: Path, output: str) -> str:
    words = [word.replace(str(folder), ".") for word in argv]
    digest = hashlib.sha256(repr([words, output, _compiler(argv[0]), cpu.architecture()]).encode())
    for where in (folder, *_includes(argv, folder)):
        for path in sorted(where.rglob("*")):
            if path.suffix in TEXTS:
                digest.update(f"{path.relative_to(where)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:32]


def _includes(argv: list[str], folder: Path) -> list[Path]:
    joined = " ".join(argv).replace("-I ", "-I").split(" ")
    named = [Path(word[2:]) for word in joined if word.startswith("-I")]
    return [one for one in named if one.is_absolute() and one != folder]


@lru_cache(maxsize=8)
def _compiler(path: str) -> str:
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
