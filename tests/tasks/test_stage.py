"""The stage from its command line: a real crawl through the real filter, killed in the middle and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.records.canonical import canonical
from kernel_assistant_training.episodes.lines import read_lines
from kernel_assistant_training.options.commands import run_command
from kernel_assistant_training.options.data import LabelArguments
from kernel_assistant_training.synth.digests import kernelbench
from kernel_assistant_training.tasks.label import run
from kernel_assistant_training.tasks.records import FilterResult, Reason
from kernel_assistant_training.tasks.shards import CARD, graph_of, read_rows
from tests.common.caches import new_cache

pytest.importorskip("pyarrow")
MOST = 14


def _words(out: Path, *more: str) -> list[str]:
    words = ["synth", "--out", str(out), "--target", "cpu", "--recipe", "small", "--compile", "aot_eager"]
    words += ["--count", "1000", "--most", str(MOST), "--blocks", "4", "--variants", "1", *more]
    return [sys.executable, "-m", "kernel_assistant_training", *words]


@pytest.mark.lost
@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_ends_with_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KERNEL_ASSISTANT_HOME": str(tmp_path / "home")}
    out, lines = tmp_path / "tasks", tmp_path / "tasks" / "verdicts.jsonl"
    process = subprocess.Popen(_words(out), env=env, stdout=subprocess.DEVNULL)
    while process.poll() is None and not (lines.is_file() and lines.read_bytes().count(b"\n") >= 2):
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = lines.read_bytes()
    whole = before[: before.rindex(b"\n") + 1]
    with lines.open("ab") as file:
        file.write(b'{"number":7,"sou')
    subprocess.run(_words(out), env=env, check=True, stdout=subprocess.DEVNULL)

    assert lines.read_bytes().startswith(whole)
    verdicts = list(read_lines(lines, FilterResult))
    assert len({one.number for one in verdicts}) == len(verdicts) == MOST
    kept = {one.key for one in verdicts if one.reason is Reason.passed}
    rows = read_rows(out)
    assert len(kept) >= MOST // 3
    assert {row["key"] for row in rows} == kept
    for row in rows:
        graph = graph_of(row)
        assert canonical(graph).key() == row["key"]
        assert not kernelbench().repeats(graph)
        assert 0.5 <= row["eager_ms"] <= 20.0
        assert row["operators"][0] in "".join(row["attribution"]) and "BSD-3-Clause" in row["text"]
    text = (out / CARD).read_text(encoding="utf-8")
    assert f"{len(kept)} tasks of {MOST} candidates" in text
    assert "operators without a text" in text

    new_cache(tmp_path / "cache")
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path))
    options = LabelArguments(out=tmp_path, tasks=out, target="cpu", candidates=2, tasks_most=3)
    first = run(options)
    labels = read_rows(tmp_path / "labels", "labels")
    assert first["rows"] == len(labels) > 0
    assert {row["outcome"] for row in labels} <= {"correct", "unsupported"}
    assert {row["task"] for row in labels} <= kept
    judged = [row for row in labels if row["outcome"] == "correct"]
    assert len(judged) >= 1 and all("ka_cpu.h" in row["source"] and row["candidate_ms"] > 0 for row in judged)
    assert all(row["samples"] > 1 and row["noise"] >= 0 and row["profile_seconds"] > 0 for row in judged)
    opened = [row["task"] for row in labels if row["open_seconds"]]
    assert sorted(opened) == sorted({row["task"] for row in judged})
    again = run(options)
    assert (again["outcomes"], again["rows_per_minute"]) == (first["outcomes"], 0.0)

    with pytest.raises(UsageError, match="seed 0, not 1"):
        run_command("synth", _words(out, "--seed", "1")[4:])
