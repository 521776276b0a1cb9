"""A real vLLM generates: its log-probabilities equal the trainer's, also after an update."""

from __future__ import annotations

from random import Random

import pytest
import torch

from kernel_assistant.serving.errors import EngineError
from kernel_assistant_training.ppo.engines.engine import engine
from kernel_assistant_training.ppo.engines.engine_options import EngineOptions
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.base import PolicyModelOptions
from kernel_assistant_training.ppo.updates.importance import RatioBounds
from kernel_assistant_training.ppo.updates.kl import KlControl
from kernel_assistant_training.ppo.updates.update import Learner, UpdateOptions
from tests.base.models import FAMILIES, save
from tests.base.test_engines import asked, difference
from tests.ppo.trajectories import several

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
#: Nats between sampler and trainer: in float32, and where one of them computes or was rounded in bfloat16.
EXACT, ROUNDED = (0.05, 0.3) if DEVICE.type == "cpu" else (0.3, 0.3)

#: The trajectories are of the trainer on the CPU.
LOOSE = RatioBounds(low=0.0, high=1e9, impossible=-1e9)


@pytest.mark.parametrize("rank", [0, 4])
def test_tokens_and_probabilities_are_those_of_the_newest_weights(rank, tmp_path, monkeypatch):
    # vLLM's CPU build wants heads of 64 channels.
    shape = {**FAMILIES["llama"], "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1}
    monkeypatch.setitem(FAMILIES, "llama", {**shape, "head_dim": 64})
    base = save("llama", tmp_path / "base", scale=0.1)
    actor = Actor.load(base, DEVICE, PolicyModelOptions(lora=rank))
    wanted = asked(6, most=12)
    options = EngineOptions("vllm", ("--enforce-eager",))
    # A token of the first reply, so that it ends there.
    end = 0
    server = engine(actor, [end], rows=4, context=256, options=options, folder=base, serving=tmp_path / "run")
    try:
        first = server.decode(wanted)
        assert difference(actor, wanted, first) < EXACT
        assert [one.ids for one in server.decode(wanted)] == [one.ids for one in first], "seeds draw the same"
        for one in first:
            assert one.ended == (one.ids[-1] == end) and (one.ended or len(one.ids) == 12)
        learner = Learner(actor, UpdateOptions(rate=1e-2, warmup=1, steps=1, bounds=LOOSE), KlControl(0.0))
        learner.update(several(Actor.load(base, torch.device("cpu")), 6), Random(0))
        assert difference(actor, wanted, first) > ROUNDED, "the update is seen in the numbers"
        # On a GPU it sleeps now.
        server.rest()
        server.load(actor)
        second = server.decode(wanted)
        # What is served is rounded to bfloat16, adapters are not.
        assert difference(actor, wanted, second) < (EXACT if rank else ROUNDED)
        server.rest()
        assert difference(actor, wanted, server.decode(wanted)) < (EXACT if rank else ROUNDED)
    finally:
        server.close()
    with pytest.raises(EngineError):
        server.decode(wanted)
