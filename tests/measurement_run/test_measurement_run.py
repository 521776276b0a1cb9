"""A short measurement run: which step runs where and when, and which files are collected."""

from __future__ import annotations

import json
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import time
from io import BytesIO
from pathlib import Path

import pytest

from bench.measurement_run.gather import MOST_OF_A_FILE, Room, finished, gather
from bench.measurement_run.placement import Lane, PlacementError, before, lanes, limits, listed
from bench.measurement_run.status import last, runs

ROOT = Path(__file__).resolve().parent.parent.parent
CORES = range(16)


def test_lanes_share_the_cores_and_wait_for_those_before_them_on_their_gpus():
    found = lanes(["0:small,held_out", "1:tasks,labels", "0+1:pool", "2@3,8-9:times"], CORES)
    assert found == [
        Lane((0,), (0, 1, 2, 3, 4), ("small", "held_out")),
        Lane((1,), (5, 6, 7, 8, 9), ("tasks", "labels")),
        Lane((0, 1), tuple(range(10)), ("pool",)),
        Lane((2,), (3, 8, 9), ("times",)),
    ]
    assert [before(found, place) for place in range(4)] == [[], [], [0, 1], []]
    assert lanes(["0:pool", "1:times"], [7])[1].cores == (7,)
    assert listed((9, 3, 8)) == "3,8-9"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no step"),
        (["small"], "no placement"),
        (["0:smal"], "'smal': small?"),
        (["0:small,pool,small"], "twice"),
        (["0:pool", "1:pool"], "twice"),
        (["0+0:pool"], "GPU twice"),
        (["0:held_out,small"], "before small"),
        (["0:labels", "1:tasks"], "before tasks"),
        (["0@-3:pool"], "cores are written"),
    ],
)
def test_what_is_no_placement_is_refused_in_a_line(words, said):
    with pytest.raises(PlacementError, match=said) as caught:
        lanes(words, CORES)
    assert "\n" not in str(caught.value)


def test_limits_are_changed_by_name():
    assert limits("pool=90 small=5")["small"] == 5
    assert limits("") == limits("pool=240")
    with pytest.raises(PlacementError, match="seconds"):
        limits("pool=soon")


class MeasurementRun:
    """A runner in a process of its own, with steps that record when they began and their arguments."""

    def __init__(self, folder: Path) -> None:
        self.work, self.steps = folder / "work", folder / "steps"
        self.steps.mkdir()
        (folder / "start.py").write_text(
            "import sys; from pathlib import Path; import bench.measurement_run.run as run\n"
            f"run.STEPS = Path({str(self.steps)!r}); raise SystemExit(run.main(sys.argv[1:]))\n"
        )
        self._start = [sys.executable, str(folder / "start.py"), str(self.work)]

    def step(self, name: str, text: str) -> None:
        self.steps.joinpath(f"{name}.sh").write_text(
            f'echo "{name} $CUDA_VISIBLE_DEVICES $(taskset -pc $$ | sed "s/.*: //")" '
            f'>>"$MEASUREMENT_WORK/order"\n{text}\n'
        )

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        more = {"PYTHONPATH": str(ROOT), "MEASUREMENT_TARGET": "cuda", **environment}
        return subprocess.Popen(
            [*self._start, *words], env={**os.environ, **more}, cwd=ROOT, stdout=subprocess.PIPE, text=True
        )

    def order(self) -> list[str]:
        file = self.work / "order"
        return file.read_text().splitlines() if file.is_file() else []

    def state(self, step: str) -> dict[str, object]:
        return dict(json.loads((self.work / "state" / f"{step}.json").read_text()))


@pytest.fixture
def run(tmp_path):
    return MeasurementRun(tmp_path)


def until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_steps_run_in_order_on_their_gpus_and_cores_and_hear_what_runs_beside_them(run):
    core = min(os.sched_getaffinity(0))
    run.step("small", 'until grep -q "beside.*tasks" "$MEASUREMENT_WORK/logs/small.log"; do sleep 0.05; done')
    run.step("tasks", 'until grep -q small "$MEASUREMENT_WORK/order"; do sleep 0.05; done; sleep 0.2; exit 3')
    run.step("labels", "sleep 0.1")
    run.step("pool", "true")
    words = (f"0@{core}:small", f"3@{core}:tasks,labels", f"0+3@{core}:pool")
    assert run.start(*words).wait(60) == 0
    assert run.order()[2:] == [f"labels 3 {core}", f"pool 0,3 {core}"]
    assert sorted(run.order()[:2]) == [f"small 0 {core}", f"tasks 3 {core}"]
    assert [run.state(step)["code"] for step in ("small", "tasks", "pool")] == [0, 3, 0]
    assert f"tasks on GPU 3 with cores {core}" in (run.work / "logs" / "small.log").read_text()
    # What ended well is not run again.
    assert run.start(*words).wait(60) == 0
    assert run.order()[4:] == [f"tasks 3 {core}"]


def test_a_step_ends_at_its_limit(run):
    run.step("pool", "exec sleep 60")
    assert run.start("0:pool", MEASUREMENT_LIMITS="pool=1").wait(60) == 0
    assert run.state("pool")["code"] == 124


def test_nothing_is_started_twice_and_a_killed_runner_is_gone_on_from(run):
    run.step(
        "small",
        'trap "sleep 0.5; echo ended >>$MEASUREMENT_WORK/order; exit 1" TERM; sleep 0.2 & wait; sleep 60 & wait',
    )
    first = run.start("0:small")
    until(lambda: len(run.order()) == 1)
    assert runs(run.work)
    second = run.start("0:small")
    assert "already" in second.communicate(timeout=60)[0]
    first.send_signal(signal.SIGKILL)
    first.wait()
    run.step("small", "true")
    assert run.start("0:small").wait(60) == 0
    assert not runs(run.work)
    # The new one waited for what the killed one had running.
    assert [line.split()[0] for line in run.order()] == ["small", "ended", "small"]
    assert (run.state("small")["code"], run.state("small")["starts"]) == (0, 2)


def write(work: Path, name: str, data: bytes | str, at: int = 0) -> Path:
    file = work / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    if at:
        os.utime(file, (at, at))
    return file


def names(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=BytesIO(lzma.decompress(data))) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive}


@pytest.fixture
def work(tmp_path):
    """The folder of a measurement run that has run for a while."""
    root = tmp_path / "work"
    write(root, "state/small.json", "{}")
    write(root, "logs/small.log", "line\n" * (MOST_OF_A_FILE // 4))
    write(root, "results/small/report.md", "# a run\n")
    write(root, "results/small/03-episodes/episodes.jsonl", '{"messages": []}\n')
    write(root, "results/small/02-pretrain/model/tokenizer.json", "{}")
    write(root, "results/small/02-pretrain/checkpoint.pt", os.urandom(1000))
    write(root, "results/tasks/verdicts.jsonl", "{}\n", at=1000)
    write(root, "results/tasks/tasks-00000.parquet", "PAR1", at=2000)
    write(root, "results/labels/labels/labels-00.jsonl", "{}\n", at=3000)
    write(root, "results/labels/labels/labels-00000.parquet", "PAR1", at=2000)
    write(root, "models/02-pretrain.gguf", os.urandom(2500))
    exported = write(root, "models/11-export.gguf", os.urandom(2500))
    write(root, "models/05-sft.gguf", exported.read_bytes())
    return root


def test_what_there_is_is_taken_once_in_few_files_of_bounded_size(work, tmp_path):
    out = tmp_path / "out"
    gather(work, out)
    assert {file.name for file in out.iterdir()} == {
        "results.tar.xz",
        "tasks.tar.xz",
        "lines.tar.xz",
        "labels.tar.xz",
        "episodes.tar.xz",
        "model-02-pretrain.gguf",
        "model-11-export.gguf",
    }
    results = names((out / "results.tar.xz").read_bytes())
    assert set(results) == {"state/small.json", "logs/small.log.end", "results/small/report.md"}
    assert MOST_OF_A_FILE - 10 < len(results["logs/small.log.end"]) <= MOST_OF_A_FILE
    # Lines that are newer than the shards beside them are what counts.
    assert set(names((out / "labels.tar.xz").read_bytes())) == {
        "labels/labels/labels-00.jsonl",
        "labels/labels/labels-00000.parquet",
    }
    assert set(names((out / "tasks.tar.xz").read_bytes())) == {"tasks/tasks-00000.parquet"}

    assert gather(work, tmp_path / "second") == []
    write(work, "models/12-more.gguf", os.urandom(100))
    assert gather(work, tmp_path / "third") == ["model-12-more.gguf: 0.00 MiB"]
    assert len(gather(work, tmp_path / "fourth", again=True)) == 8


def test_what_is_too_large_is_split_and_what_has_no_room_goes_the_next_time(work, tmp_path):
    room = Room(files=4, file=1024, all=1 << 20)
    said = gather(work, tmp_path / "first", room)
    assert {file.name for file in (tmp_path / "first").iterdir()} == {
        "results.tar.xz",
        *(f"model-11-export.gguf.{place:02}" for place in range(3)),
    }
    assert sum("left for the next time" in line for line in said) == 5
    joined = b"".join((tmp_path / "first" / f"model-11-export.gguf.{place:02}").read_bytes() for place in range(3))
    assert joined == (work / "models" / "11-export.gguf").read_bytes()

    gather(work, tmp_path / "second", room)
    assert {"tasks.tar.xz", "labels.tar.xz", "episodes.tar.xz"} < {
        file.name for file in (tmp_path / "second").iterdir()
    }
    gather(work, tmp_path / "third", room)
    assert {file.name for file in (tmp_path / "third").iterdir()} == {
        f"model-02-pretrain.gguf.{n:02}" for n in range(3)
    }


def test_models_are_those_of_stages_that_are_over_and_left_one_of_their_own(tmp_path):
    for stage, model in (("01-synth", ""), ("02-pretrain", "02-pretrain/model"), ("04-critic", "04-critic/checkpoint")):
        write(tmp_path, f"{stage}/done", json.dumps({"seconds": 1, "model": model}))
    write(tmp_path, "03-sft/progress", "{}")
    write(tmp_path, "05-export/done", '{"seconds": 1}')
    exported = write(tmp_path, "05-export/run.gguf", "GGUF")
    assert list(finished(tmp_path)) == [("02-pretrain", tmp_path / "02-pretrain/model"), ("05-export", exported)]


def test_the_last_words_of_a_step_are_its_own(tmp_path):
    log = write(
        tmp_path,
        "a.log",
        "\x1b[1m10%\rhalf\r\n\n[measurement run 10:00:00] small: beside it: nothing\nx.py:3: FutureWarning: so\n",
    )
    assert last(log) == "half"
