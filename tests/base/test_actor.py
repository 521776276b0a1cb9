"""Tests models of any family as actor: values equal the model's own, in pieces, with checkpointing, and with
adapters.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch

from kernel_assistant.errors import UsageError
from kernel_assistant_training.ppo.model import actor as module
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.base import PolicyModelOptions
from kernel_assistant_training.ppo.updates.kl import KlControl
from kernel_assistant_training.ppo.updates.losses import entropy
from kernel_assistant_training.ppo.updates.update import Learner, UpdateOptions
from tests.base.models import FAMILIES, VOCABULARY, save
from tests.ppo.trajectories import several

CPU = torch.device("cpu")
LORA = PolicyModelOptions(lora=4)


def row(length=40):
    ids = torch.randint(0, VOCABULARY, (2, length), generator=torch.Generator().manual_seed(1))
    actions = torch.zeros(2, length, dtype=torch.bool)
    actions[0, 3:17], actions[1, 20:] = True, True
    return ids, actions


def plain(model, ids, actions):
    """The expected values, computed from all logits by their definition."""
    logits = model(ids, use_cache=False).logits.float()[:, :-1]
    said = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return said[actions[:, 1:]], entropy(logits)[actions[:, 1:]]


@pytest.mark.parametrize("kind", FAMILIES)
def test_numbers_and_gradients_are_those_of_the_plain_formula(kind, tmp_path, monkeypatch):
    # Five rows of logits at once, so that parts have edges.
    monkeypatch.setattr(module, "LOGITS", 5 * VOCABULARY)
    actor = Actor.load(save(kind, tmp_path), CPU, PolicyModelOptions(checkpointing=True))
    ids, actions = row()
    found = actor(ids, actions)
    (found.logprobs.sum() + 0.3 * found.entropy.square().sum()).backward()
    mine = {name: weight.grad.clone() for name, weight in actor.model.named_parameters() if weight.grad is not None}
    actor.zero_grad()
    said, spread = plain(actor.model, ids, actions)
    (said.sum() + 0.3 * spread.square().sum()).backward()
    assert torch.allclose(found.logprobs[actions], said, atol=1e-5)
    assert torch.allclose(found.entropy[actions], spread, atol=1e-5)
    assert not found.logprobs[~actions].any()
    theirs = {name: weight.grad for name, weight in actor.model.named_parameters() if weight.grad is not None}
    assert mine.keys() == theirs.keys() and theirs
    for name, grad in theirs.items():
        assert torch.allclose(mine[name], grad, atol=1e-4 * max(1.0, float(grad.abs().max()))), name


def test_a_family_with_logits_of_its_own_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "logits_of", lambda model, states: 3 * model.get_output_embeddings()(states).float())
    with pytest.raises(UsageError, match="LlamaForCausalLM makes its logits in a way of its own"):
        Actor.load(save("llama", tmp_path), CPU)


def test_what_is_no_model_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="nobody/nothing could not be fetched"):
        Actor.load(Path("nobody/nothing"), CPU)
    with pytest.raises(UsageError, match="no folder"):
        Actor.load(tmp_path / "missing", CPU)
    with pytest.raises(UsageError, match="holds no model"):
        Actor.load(tmp_path, CPU)


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_adapters_alone_are_trained_kept_and_found_again(kind, tmp_path):
    base = save(kind, tmp_path / "base")
    actor = Actor.load(base, CPU, LORA)
    before = {name: weight.clone() for name, weight in actor.state_dict().items()}
    fast = UpdateOptions(rate=1e-2, head_rate=1e-2, warmup=1, steps=1)
    learner = Learner(actor, fast, KlControl(0.01), reference=actor.reference(base))
    found = several(actor, 6)
    first = learner.update(found, Random(0))
    changed = {name for name, weight in actor.state_dict().items() if not torch.equal(before[name], weight)}
    assert changed and all(name.startswith("head.") or ".lora_" in name for name in changed)
    assert first["kl_reference"] == pytest.approx(0, abs=1e-6)

    (tmp_path / "checkpoint").mkdir()
    actor.save(tmp_path / "checkpoint")
    assert sorted(file.name for file in tmp_path.glob("checkpoint/*")) == ["adapter", "value"]
    again = Actor.load(tmp_path / "checkpoint", CPU)
    ids, actions = row()
    with torch.no_grad():
        mine, theirs, base_says = actor(ids, actions), again(ids, actions), Actor.load(base, CPU)(ids, actions)
        assert torch.equal(mine.logprobs, theirs.logprobs)
        assert torch.allclose(mine.values, theirs.values, atol=1e-2)
        assert not torch.allclose(mine.logprobs, base_says.logprobs, atol=1e-3)
        # The policy that a stage began with: the base for the first stage, its adapters for the next.
        assert torch.allclose(actor.reference(base)(ids, actions).logprobs, base_says.logprobs, atol=1e-5)
        held = again.reference(tmp_path / "checkpoint")
    Learner(again, fast, KlControl(0.0)).update(several(again, 6), Random(1))
    with torch.no_grad():
        assert torch.allclose(held(ids, actions).logprobs, mine.logprobs, atol=1e-5)
        assert not torch.allclose(again(ids, actions).logprobs, mine.logprobs, atol=1e-3)


def test_a_checkpoint_knows_its_base(tmp_path):
    base = save("llama", tmp_path / "base")
    actor = Actor.load(base, CPU, LORA)
    (tmp_path / "checkpoint").mkdir()
    actor.save(tmp_path / "checkpoint")
    save("llama", base, seed=1)
    with pytest.raises(UsageError, match="is not the base that"):
        Actor.load(tmp_path / "checkpoint", CPU)
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="which is not there"):
        Actor.load(tmp_path / "checkpoint", CPU)
