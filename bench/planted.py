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
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.common.kinds import GATE  # noqa: E402 - the checkout is found then

#: The tests that decide, and no others.
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-m", GATE)


@dataclass(frozen=True)
class Defect:
    """In `file` the text `right` is replaced by `wrong`; `tests` are arguments of pytest."""

    what: str
    file: str
    right: str
    wrong: str
    tests: str


DEFECTS = (
    Defect(
        "a kernel runs for what is not contiguous",
        "kernel_assistant/worker/applied/guard.py",
        "return tensor.is_contiguous()",
        "return True",
        "tests/apply/test_applied_runs.py",
    ),
    Defect(
        "an interval of 99.8% is called one of 99.9%",
        "kernel_assistant/worker/measuring/statistics.py",
        "<= alpha / 2:",
        "<= alpha:",
        "tests/judge/test_statistics.py",
    ),
    Defect(
        "a kernel may be faster than memory",
        "kernel_assistant/worker/measuring/profiling.py",
        "return impossible(seconds,",
        "return False and impossible(seconds,",
        "tests/judge/test_too_fast.py",
    ),
    Defect(
        "threads may run on after a call",
        "kernel_assistant/worker/measuring/profiling.py",
        'after = _thread_watch(runner, most_threads + (self.target == "cuda"))',
        "after = _nothing",
        "tests/hostile/test_plan_path.py",
    ),
    Defect(
        "a drift of all values is not seen",
        "kernel_assistant/worker/verifying/numerics.py",
        "drifted = stats.squared_error > norm_bound",
        "drifted = False",
        "tests/judge",
    ),
    Defect(
        "the sandbox may write where it may read",
        "kernel_assistant/sandbox/bubblewrap.py",
        'yield from ("--bind" if writable else "--ro-bind", path, path)',
        'yield from ("--bind", path, path)',
        "tests/sandbox",
    ),
    Defect(
        "the sandbox has the network",
        "kernel_assistant/sandbox/bubblewrap.py",
        '("--unshare-all", "--cap-drop"',
        '("--unshare-all", "--share-net", "--cap-drop"',
        "tests/sandbox",
    ),
    Defect(
        "an edited file loses its byte order mark",
        "kernel_assistant/apply/text.py",
        '(codecs.BOM_UTF8 if self.mark else b"")',
        'b""',
        "tests/apply",
    ),
    Defect(
        "advantages use the value of the wrong turn",
        "training/kernel_assistant_training/ppo/updates/advantages.py",
        "gamma * following - value",
        "gamma * value - value",
        "tests/ppo/test_mathematics.py",
    ),
    Defect(
        "the upper clip is the lower",
        "training/kernel_assistant_training/ppo/updates/losses.py",
        "1 + clip.high",
        "1 + clip.low",
        "tests/ppo/test_mathematics.py",
    ),
)


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
