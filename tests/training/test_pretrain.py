"""A small stage 0: processes, packing, loss, schedule, files, and resuming from a checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from kernel_assistant.errors import InternalError
from kernel_assistant.session.training_run import RunState, read_status
from kernel_assistant_training.architecture import SMALL, Llama
from kernel_assistant_training.folder import load_folder, save_folder
from kernel_assistant_training.greedy import greedy
from kernel_assistant_training.packing import FIRST, LEARNED, PROMPT, PackedRows
from kernel_assistant_training.stages import pretrain
from kernel_assistant_training.stages.export import export
from kernel_assistant_training.stream import Stream, StreamOptions
from kernel_assistant_training.tokenizer import load, vocabulary_size
from tests.common.threads import one_thread

TINY = replace(SMALL, width=64, inner=128, layers=2, heads=1)


@pytest.fixture
def source(monkeypatch):
    """A source in a module that a new process can import."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import conversations

    return conversations


@pytest.fixture
def options(tmp_path, monkeypatch, source):
    monkeypatch.setitem(pretrain.SHAPES, "small", TINY)
    rows = {"rows": 2, "length": 256, "processes": 1, "keep": 64, "held_out": 0, "sources": (source.sums,)}
    return pretrain.PretrainOptions(
        out=tmp_path / "run", shape="small", seconds=250, steps=150, rate=1e-2, warm_up=5, **rows
    )


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.learns
@pytest.mark.slow
def test_a_run_learns_and_can_be_gone_on_with(options, source):
    with one_thread():
        first = pretrain.train(options)
        second = pretrain.train(replace(options, resume=True, steps=170))
    steps = [line for line in metrics(options.out) if "answer_loss" in line]
    assert {line["stage"] for line in metrics(options.out)} == {"pretrain"} and steps[-1]["time"] >= steps[0]["time"]
    assert read_status(options.out).state is RunState.ended
    assert steps[0]["answer_loss"] > 5 and steps[-1]["answer_loss"] < 0.5
    assert steps[-1]["answer_right"] > 0.9
    assert (first.step, second.step, second.runs) == (150, 170, 1) and second.seconds > first.seconds
    ended = [line for line in metrics(options.out) if "ended" in line]
    assert [line["different"] for line in ended] == [3, 3]  # there are three answers
    assert (options.out / "middle" / "config.json").is_file()
    prompts = [messages[:2] for messages, _ in zip(source.sums(77), range(4), strict=False)]
    answers = greedy(options.out / "model", prompts, torch.device("cpu"), most=48)
    # So short a run learns what answers look like, not yet which operator is asked for.
    assert all(answer in {f"```cpp\n{op}(v, C0);\n```\n" for op in ("add", "mul", "sub")} for answer in answers)
    figures = export(options.out / "model", options.out / "model.gguf")
    assert figures["bytes"] < 1_000_000


def test_another_run_begins_with_the_weights_of_a_model(options, source):
    model = Llama(replace(TINY, vocabulary=vocabulary_size(load())))
    save_folder(model, options.out / "known")
    pretrain.train(replace(options, base=options.out / "known", steps=1, rate=0.0))
    (first,) = (one for one in metrics(options.out) if one.get("step") == 1 and "answer_loss" in one)
    before, after = (load_folder(options.out / name).state_dict() for name in ("known", "model"))
    assert [name for name, weight in before.items() if not torch.equal(weight, after[name])] == []
    assert first["answer_loss"] > 0


def test_only_what_follows_inside_a_conversation_is_learned():
    flags = np.array([[PROMPT | FIRST, PROMPT, LEARNED, LEARNED, PROMPT | FIRST, LEARNED, 0, 0]], np.uint8)
    ids = np.arange(10, 18, dtype=np.uint16)[None]
    batch = pretrain.batch_of(PackedRows(ids, flags), 0.1, torch.device("cpu"))
    assert batch.weights[0].tolist() == pytest.approx([0.1, 1, 1, 0, 1, 0, 0, 0])
    assert batch.learned[0].tolist() == [0, 1, 1, 0, 1, 0, 0, 0]
    assert batch.labels[0, :5].tolist() == [11, 12, 13, 14, 15]
    assert batch.documents[0].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]


def test_the_loss_is_the_weighted_mean():
    torch.manual_seed(0)
    hidden, embedding = torch.randn(1, 3, 8), torch.randn(11, 8)
    labels, weights, learned = torch.tensor([[4, 5, 6]]), torch.tensor([[0.1, 1, 0]]), torch.tensor([[0.0, 1, 0]])
    loss, parts = pretrain.weighted_losses(hidden, embedding, labels, weights, learned)
    each = torch.nn.functional.cross_entropy((hidden @ embedding.T)[0], labels[0], reduction="none")
    assert loss == pytest.approx(float((each[0] * 0.1 + each[1]) / 1.1), rel=1e-5)
    assert parts[0] == pytest.approx(float(each[1])) and parts[1] == 1


def test_the_rate_rises_with_steps_and_falls_with_the_clock(tmp_path):
    options = pretrain.PretrainOptions(out=tmp_path, seconds=100, warm_up=10, decay=0.4, rate=1.0)
    steps = [(0, 0, 0.1), (9, 1, 1.0), (500, 59, 1.0), (800, 80, 0.5), (900, 100, 0.0), (901, 101, 0.0)]
    for step, seconds, expected in steps:
        progress = pretrain.PretrainProgress(step=step, seconds=seconds)
        assert pretrain.learning_rate(options, progress) == pytest.approx(expected)


def test_fresh_rows_go_first(source):
    with Stream(StreamOptions((source.sums,), processes=1, length=256, keep=48)) as stream:
        rows = [stream.take(16) for _ in range(3)]
        assert all(len(one) == 16 for one in rows)
        counts = stream.counts
        assert counts.fresh_rows + counts.repeated_rows == 48
        assert counts.fresh_rows >= 16 and counts.fresh_tokens <= 48 * 256
        assert counts.conversations > stream.different() == 3


def test_rows_come_again_where_there_are_no_more(source):
    with Stream(StreamOptions((source.few,), processes=1, length=256, keep=48)) as stream:
        rows = [stream.take(16) for _ in range(6)]
        counts = stream.counts
    assert counts.conversations <= 200 and counts.repeated_rows > 0
    assert counts.fresh_rows + counts.repeated_rows == 96
    assert all((one.flags & FIRST).any(axis=1).all() for one in rows)


def test_processes_that_end_are_counted(source):
    with Stream(StreamOptions((source.ends_if_even,), processes=2, length=256, keep=48)) as stream:
        while not stream.counts.ended_processes:
            stream.take(16)
        assert len(stream.take(16)) == 16


def test_processes_that_all_end_are_not_waited_for(source):
    ending = StreamOptions((source.ends_if_even,), processes=1, length=256, keep=48)
    with Stream(ending) as stream, pytest.raises(InternalError, match="have ended"):
        stream.take(16)


def test_processes_end_with_who_started_them(source, tmp_path):
    """They also end if the pool has room for ever and nobody tells them to stop."""
    program = tmp_path / "streams.py"
    program.write_text(
        "import sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import conversations\n"
        "from kernel_assistant_training.stream import Stream, StreamOptions\n"
        "if __name__ == '__main__':\n"
        "    with Stream(StreamOptions((conversations.sums,), processes=1, length=256, keep=100_000)) as stream:\n"
        "        stream.take(1)\n"
        "        print(*[process.pid for process in stream._processes], flush=True)\n"
        "        time.sleep(600)\n"
    )
    started = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    writer = psutil.Process(int(started.stdout.readline()))
    started.kill()
    started.wait()
    writer.wait(timeout=60)
