"""Runs the tests of one kind: `python -m tests.run gate|quick|timed|lost|learns|cluster|gpu|vllm [FLAGS OF PYTEST]`.

A test of the gate that fails is run once more, alone, at the end. If it passes then, the run passes and names it as
flaky. Results go to build/tests/ (or KERNEL_ASSISTANT_TEST_RESULTS): JUnit XML, and the output of second runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.common.kinds import GATE, KINDS, expression

ROOT = Path(__file__).resolve().parent.parent
#: More failures than this are no flakes: none of them is run again.
MOST_AGAIN = 8
#: Seconds for a second run, if its own timeout does not end it.
AGAIN_SECONDS = 900
SHOWN_LINES = 60
#: Of `python -m pytest`: some tests failed; no test was collected.
FAILED, NONE = 1, 5


def main(name: str, *flags: str) -> int:
    results = Path(os.environ.get("KERNEL_ASSISTANT_TEST_RESULTS") or ROOT / "build" / "tests")
    results.mkdir(parents=True, exist_ok=True)
    if name in ("gate", "quick"):
        chosen = GATE if name == "gate" else f"{GATE} and not slow"
        code = _pytest(chosen, results / name, *_beside(), *flags)
        return again(results / name) if code == FAILED else code
    kind = next((kind for kind in KINDS if kind.marker == name), None)
    if kind is None:
        sys.exit(f"no kind of tests is called {name!r}. There are: gate, quick, {', '.join(k.marker for k in KINDS)}")
    if name != "gpu":
        return _pytest(expression(name), results / name, *(_beside() if kind.beside else ()), *flags)
    beside = _pytest(f"{expression(name)} and not timed", results / "gpu", *_beside(), *flags)
    alone = _pytest(f"{expression(name)} and timed", results / "gpu-timed", *flags)
    return next((code for code in (beside, alone) if code not in (0, NONE)), 0)


def _beside() -> tuple[str, ...]:
    """Flags of pytest-xdist. A process that dies is replaced, and fails the test that it ran."""
    asked = os.environ.get("PROCESSES")
    processes = (
        asked or subprocess.run((ROOT / ".ci" / "processes",), capture_output=True, text=True, check=True).stdout
    )
    return (
        "--numprocesses",
        processes.strip(),
        "--dist",
        "loadscope",
        "--no-loadscope-reorder",
        "--max-worker-restart",
        "100",
    )


def _pytest(chosen: str, results: Path, *flags: str) -> int:
    """Runs tests by their markers, shows the output, and returns pytest's exit code."""
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    own = ("-m", chosen, f"--junitxml={results}/junit.xml", "-o", f"cache_dir={results}/cache")
    return subprocess.run((sys.executable, "-m", "pytest", *own, *flags), cwd=ROOT, check=False).returncode


def again(results: Path, root: Path = ROOT) -> int:
    """Runs each test alone that failed in the run with these results; 0 if all pass. Names those that passed and shows
    the output of the others.
    """
    failed = list(json.loads((results / "cache" / "v" / "cache" / "lastfailed").read_text()))
    if len(failed) > MOST_AGAIN:
        print(f"{len(failed)} tests failed: too many to be run again", flush=True)
        return FAILED
    left = [
        test for number, test in enumerate(failed) if not _passes_alone(test, root, results / f"again-{number}.log")
    ]
    for test in failed:
        print(
            f"FAILED TWICE: {test}" if test in left else f"flaky: {test} (passed alone; note it in docs/test_suite.md)"
        )
    sys.stdout.flush()
    return FAILED if left else 0


def _passes_alone(test: str, root: Path, log: Path) -> bool:
    print(f"once more, alone: {test}", flush=True)
    with log.open("w") as output:
        try:
            # Not captured, so that the last words of a process that dies are kept.
            words = (sys.executable, "-m", "pytest", "--capture=no", "-q", "--no-header", test)
            code = subprocess.run(
                words, cwd=root, stdout=output, stderr=subprocess.STDOUT, timeout=AGAIN_SECONDS, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = FAILED
    if code:
        print("\n".join(log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]), flush=True)
    return not code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
