"""The stages with a model of another family, from its folder to a critic and back, through their command lines."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from kernel_assistant.errors import UsageError
from kernel_assistant_training.options.commands import run_command
from kernel_assistant_training.ppo.model.actor import HEAD, Actor
from kernel_assistant_training.ppo.store import TrajectoryStore
from tests.base.models import save
from tests.base.test_together import launch
from tests.ppo.conftest import cache  # noqa: F401 - a fixture

pytestmark = [pytest.mark.learns, pytest.mark.slow]
PLAYED = "--target cpu --reward correctness --clock nominal --tasks 2 --episodes 1 --reply 12 --lora 4"
LEARNED = "--held-out 0 --steps 1 --rate 1e-3"


@pytest.fixture
def folder(tmp_path, cache):  # noqa: F811
    """The folder of a run on a device with known bandwidths."""

    def made(name):
        if not (tmp_path / name).is_dir():
            shutil.copytree(cache, tmp_path / name)
        return tmp_path / name

    return made


def lines(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_adapters_go_from_stage_to_stage_and_on_after_an_end(folder, tmp_path):
    base = save("qwen2", tmp_path / "base")
    single = folder("single")
    words = f"--base {base} --out {single} {PLAYED} {LEARNED} --context 2048".split()
    run_command("ppo_single", [*words, "--iterations", "1"])
    run_command("ppo_single", [*words, "--iterations", "2"])
    assert [line["step"] for line in lines(single)] == [0, 1, 2]
    for line in lines(single)[1:]:
        assert line["episodes"] == 2 and line["ratio_left_out_share"] == 0 and line["kl_sampler"] < 1e-3
    first, newest = single / "checkpoint-000000", single / "checkpoint-000002"
    assert not list(newest.glob("*.safetensors")) and (newest / "tokenizer.json").is_file()
    begun, ended = (load_file(one / "adapter" / "adapter_model.safetensors") for one in (first, newest))
    assert not any(weight.any() for name, weight in begun.items() if "lora_B" in name)
    assert all(weight.any() for weight in ended.values())

    words = f"--base {newest} --out {tmp_path / 'critic'} --trajectories {single} {PLAYED} --epochs 1".split()
    run_command("critic", words)
    judged = tmp_path / "critic" / "checkpoint-000001"
    kept = load_file(judged / "adapter" / "adapter_model.safetensors")
    assert all(torch.equal(weight, kept[name]) for name, weight in ended.items())
    assert not torch.equal(load_file(judged / HEAD)["inner.weight"], load_file(newest / HEAD)["inner.weight"])

    agent = folder("agent")
    words = f"--base {judged} --out {agent} {PLAYED} {LEARNED} --context 4096 --turns 2 --iterations 1".split()
    launch("-m", "kernel_assistant_training", "ppo_agent", *words)
    (_, line) = lines(agent)
    # Held to the adapters that it began with, not to the base.
    assert line["kl_reference"] == pytest.approx(0, abs=1e-5)
    assert any(one.turns == 2 for one in TrajectoryStore(agent).all())
    assert Actor.load(agent / "checkpoint-000001", torch.device("cpu")).adapters.base == base.resolve()


def test_another_rank_is_another_run(folder, tmp_path):
    base, out = save("llama", tmp_path / "base"), folder("run")
    words = f"--base {base} --out {out} {PLAYED} {LEARNED} --context 2048 --iterations 0"
    run_command("ppo_single", words.split())
    with pytest.raises(UsageError, match="lora 4, not 8"):
        run_command("ppo_single", [*words.split(), "--lora", "8"])
