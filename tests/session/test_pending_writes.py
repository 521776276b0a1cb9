"""Data that could not be written because the disk was full is written when there is room."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from msgspec.structs import replace

from kernel_assistant.errors import StoreError
from kernel_assistant.events import AnyEvent, BestImproved, Warned
from kernel_assistant.session.hosting.pending_writes import PendingWrites
from kernel_assistant.session.kinds.job import GuardedEmit


def test_a_result_is_written_when_there_is_room(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: writes fail at the same point, also for root."""
    code = """
        import resource, sys, time
        from pathlib import Path
        from kernel_assistant.session.artifacts import write_files
        from kernel_assistant.session.hosting.pending_writes import PendingWrites
        folder, unwritten = Path(sys.argv[1]) / "result", PendingWrites(every=0.05)
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        write_files(folder, {"plan.json": b"old"})
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
        print(unwritten.write(lambda: write_files(folder, {"plan.json": b"new", "large": b"x" * 5000})))
        print(unwritten.write(lambda: (folder / "behind").write_text("it")))
        print(sorted(path.name for path in folder.parent.rglob("*")), (folder / "plan.json").read_text())
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        while not (folder / "behind").exists():
            time.sleep(0.02)
        print(sorted(path.name for path in folder.parent.rglob("*")), (folder / "plan.json").read_text())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    first, second, before, after = done.stdout.splitlines()
    assert "cannot write" in first and "File too large" in first and "wait for room" in second
    assert before == "['plan.json', 'result'] old"
    assert after == "['behind', 'large', 'plan.json', 'result'] new"


def test_what_fits_is_written_at_once() -> None:
    done: list[str] = []
    assert PendingWrites().write(lambda: done.append("now")) is None
    assert done == ["now"]


def test_closing_tries_once_more() -> None:
    done, failures = list[str](), [StoreError("full"), StoreError("full")]
    unwritten = PendingWrites(every=3600.0)

    def write() -> None:
        if failures:
            raise failures.pop()
        done.append("written")

    assert unwritten.write(write) is not None
    failures.clear()
    unwritten.close()
    assert done == ["written"]


def test_a_log_that_is_full_ends_a_job_only_until_something_is_confirmed() -> None:
    told: list[AnyEvent] = []

    def emit(event: AnyEvent) -> None:
        told.append(event)
        raise StoreError("the disk is full")

    best = BestImproved(candidate="c", schedule="", candidate_ms=1.0, speedup_vs_eager=2.0, speedup_vs_compile=2.0)
    confirming = GuardedEmit(emit)
    for event in (Warned(message="x"), best):
        with pytest.raises(StoreError):
            confirming(event)
    confirmed = replace(best, confirmed=True)
    confirming(confirmed)
    confirming(Warned(message="y"))
    assert told[-2:] == [confirmed, Warned(message="y")]
