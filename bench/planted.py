"""Plants ten defects, each into a copy of the checkout, and runs the tests that have to fail then.

    python bench/planted.py [COMMIT]

Run it after changes to the test suite, which must still detect these defects. Takes some minutes and prints a line for
each defect. The exit code is 1 if one was not detected. That the tests pass without a defect is what `make test`
checks.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.common.kinds import GATE

ROOT = Path(__file__).resolve().parent.parent
#: The tests that decide, and no others.
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-m", GATE)


@dataclass(frozen=True)
class Defect:
    """A row of `planted.toml`."""

    what: str
    file: str
    right: str
    wrong: str
    tests: str


DEFECTS = [Defect(**one) for one in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["defect"]]


def main(commit: str = "HEAD") -> int:
    missed = 0
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder, "checkout")
        subprocess.run(("git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", copy, commit), check=True)
        try:
            for defect in DEFECTS:
                caught = _is_caught(defect, copy)
                print(f"{'caught' if caught else 'MISSED':7} {defect.what} ({defect.tests})", flush=True)
                missed += not caught
        finally:
            subprocess.run(("git", "-C", ROOT, "worktree", "remove", "--force", copy), check=True)
    return int(missed > 0)


def _is_caught(defect: Defect, copy: Path) -> bool:
    """Whether a test fails with the defect. Raises ValueError unless its text is in the file exactly once."""
    path = copy / defect.file
    text = path.read_text(encoding="utf-8")
    if text.count(defect.right) != 1:
        raise ValueError(f"{defect.right!r} is {text.count(defect.right)} times in {defect.file}")
    path.write_text(text.replace(defect.right, defect.wrong), encoding="utf-8")
    roots = ":".join(str(copy / name) for name in ("", "lsp", "tui", "training"))
    done = subprocess.run(
        ("env", f"PYTHONPATH={roots}", *PYTEST, defect.tests), cwd=copy, capture_output=True, text=True, check=False
    )
    path.write_text(text, encoding="utf-8")
    return done.returncode == 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
