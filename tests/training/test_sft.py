"""Stage 1: which tokens of an episode are learned, and training with TRL if it is installed (the extra `train`)."""

from __future__ import annotations

import gzip
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernel_assistant.errors import UsageError
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.llama.gguf_header import LANGUAGE_FIELD
from kernel_assistant.session.training_run import METRICS, RunState, TrainingCommand, ask, read_status
from kernel_assistant_training.architecture import SMALL, TINY, Llama
from kernel_assistant_training.folder import load_folder, save_folder
from kernel_assistant_training.greedy import greedy
from kernel_assistant_training.options.stages import SftArguments
from kernel_assistant_training.ppo.model.base import load_base
from kernel_assistant_training.stages import fine_tuning, sft
from kernel_assistant_training.stages.tuned import open_tuned
from kernel_assistant_training.tokenizer import load, vocabulary_size
from tests.common.threads import one_thread

PROMPT = [
    {"role": "system", "content": "Write C++ for the graph."},
    {"role": "user", "content": "n0 = relu(x0)\nB=32 sm_90"},
]
REPAIR = [
    *PROMPT,
    {"role": "assistant", "content": "```cpp\nwrong\n```\n", "loss": False},
    {"role": "tool", "content": "compile L1 undeclared wrong", "tool_call_id": "evaluate"},
    {"role": "assistant", "content": "```cpp\nright\n```\n", "loss": True},
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "episodes.jsonl.gz"
    lines = "".join(json.dumps({"messages": REPAIR, "outcome": "correct"}) + "\n" for _ in range(8))
    path.write_bytes(gzip.compress(lines.encode()))
    return path


@pytest.fixture
def source(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import conversations

    return conversations.sums


def test_labels_leave_out_prompts_observations_and_faulty_turns(file, source):
    found, figures = sft.examples([file], (source,), 0.2, seed=0)
    assert (figures["episodes"], figures["pairs"], figures["left_out"]) == (8, 2, 0)
    tokenizer = load()
    texts = set()
    for tokens in found:
        labels = fine_tuning.labels(tokens)
        assert len(labels) == len(tokens.ids)
        texts.add(tokenizer.decode([one for one in labels if one != fine_tuning.IGNORED], skip_special_tokens=False))
    (repaired,) = (text for text in texts if "C0" not in text)
    assert repaired == "```cpp\nright\n```\n<|im_end|>"


def test_several_processes_make_the_same_tokens_and_as_many_pairs(file, source):
    made = [sft.examples([file], (source,), 0.5, seed=0, processes=processes) for processes in (1, 2)]
    assert [(figures["episodes"], figures["pairs"]) for _, figures in made] == [(8, 8)] * 2
    alone, together = (max((one.ids for one in tokens), key=len) for tokens, _ in made)
    assert alone == together


def test_what_is_no_episode_is_named(tmp_path):
    (tmp_path / "odd.jsonl").write_text('{"messages": []}\n{"turns": 3}\n')
    with pytest.raises(UsageError, match=r"odd\.jsonl:2 is no episode"):
        list(sft.episodes([tmp_path / "odd.jsonl"]))


def test_episodes_and_models_of_an_earlier_language_are_refused(tmp_path):
    earlier = "Write CUDA for the graph. Answer: one fenced source that begins with // set: and // launch: lines, or …"
    (tmp_path / "old.jsonl").write_text(json.dumps({"messages": [{"role": "system", "content": earlier}]}) + "\n")
    with pytest.raises(UsageError, match=r"old\.jsonl has kernels in an earlier language"):
        list(sft.episodes([tmp_path / "old.jsonl"]))
    save_folder(Llama(TINY), tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, LANGUAGE_FIELD: ""}))
    for opened in (load_folder, open_tuned, lambda folder: load_base(folder, torch.float32)):
        with pytest.raises(UsageError, match="earlier language"):
            opened(tmp_path / "model")


def options_of(folder, file, **changed):
    options = {"base": folder / "base", "episodes": (file,), "out": folder / "out", "processes": 1, "seed": 0}
    options |= {"trainer": "transformers", "pairs_share": 0.0, "epochs": 1.0, "seconds": 0.0, "batch": 1, "rate": 1e-3}
    return SftArguments(**(options | changed), accumulate=1, checkpoint_seconds=60.0)


@pytest.mark.learns
@pytest.mark.slow
@pytest.mark.parametrize("trainer", fine_tuning.TRAINERS)
def test_the_repair_is_learned_and_not_the_fault(file, source, tmp_path, trainer):
    for package in fine_tuning.TRAINERS[trainer][0]:
        pytest.importorskip(package, reason=f"{package} is not installed: pip install 'kernel-assistant[train]'")
    torch.manual_seed(0)
    shape = replace(SMALL, vocabulary=vocabulary_size(load()), width=64, inner=128, layers=2, heads=1)
    save_folder(Llama(shape), tmp_path / "base")
    options = options_of(tmp_path, file, trainer=trainer, pairs_share=0.2, steps=120, batch=4, rate=5e-3)
    with one_thread():
        figures = sft.train(options, (source,))
    assert figures["episodes"] == 8
    before, after = load_folder(tmp_path / "base"), load_folder(tmp_path / "out")
    assert not torch.equal(before.model.norm.weight, after.model.norm.weight)
    prompt = [Message(**{name: one[name] for name in one if name != "loss"}) for one in REPAIR[:4]]
    assert greedy(tmp_path / "out", [prompt], torch.device("cpu"), most=20) == ["```cpp\nright\n```\n"]


@pytest.fixture
def base(tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'kernel-assistant[train]'")
    shape = replace(SMALL, vocabulary=vocabulary_size(load()), width=64, inner=64, layers=1, heads=1)
    save_folder(Llama(shape), tmp_path / "base")


def test_training_ends_by_the_clock_with_a_rate_of_zero_and_a_model(base, file, source, tmp_path):
    options = options_of(tmp_path, file, steps=1_000_000, seconds=2.0)
    steps = sft.train(options, (source,))["steps"]
    assert 0 < steps < 1_000_000
    load_folder(tmp_path / "out")
    status = read_status(tmp_path / "out")
    assert status is not None and (status.state, status.step) == (RunState.ended, steps)


def test_the_rate_falls_to_zero_by_the_last_step_if_it_comes_before_the_clock(base, file, source, tmp_path):
    sft.train(options_of(tmp_path, file, steps=8, seconds=600.0), (source,))
    lines = [json.loads(line) for line in (tmp_path / "out" / METRICS).read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines if "learning_rate" in line]
    assert rates[-1] <= 1e-3 / 8 + 1e-9 and rates == sorted(rates, reverse=True)


def test_training_stops_when_somebody_asks(base, file, source, tmp_path):
    over = threading.Event()

    def stop_when_it_reports():
        while not over.wait(0.02):
            if (tmp_path / "out" / METRICS).exists():
                ask(tmp_path / "out", TrainingCommand.stop)
                return

    watcher = threading.Thread(target=stop_when_it_reports)
    watcher.start()
    try:
        steps = sft.train(options_of(tmp_path, file, steps=1_000_000), (source,))["steps"]
    finally:
        over.set()
        watcher.join()
    assert 10 <= steps < 1_000_000
    load_folder(tmp_path / "out")
    status = read_status(tmp_path / "out")
    assert status is not None and status.state is RunState.stopped
    lines = [json.loads(line) for line in (tmp_path / "out" / METRICS).read_text().splitlines()]
    assert {line["stage"] for line in lines} == {"sft"} and {"loss", "gradient_norm"} <= lines[0].keys()
