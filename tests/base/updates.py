"""A program that makes updates on given trajectories, alone or together with other processes. `python updates.py BASE
TRAJECTORIES OUT`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

import torch

from kernel_assistant_training.decode import GenerationRequest
from kernel_assistant_training.ppo.engines.engine import DECODE, LOAD, DistributedEngine
from kernel_assistant_training.ppo.engines.engine_transformers import TransformersEngine
from kernel_assistant_training.ppo.model.actor import WHOLE, Actor
from kernel_assistant_training.ppo.model.base import PolicyModelOptions
from kernel_assistant_training.ppo.model.policy_model import shard
from kernel_assistant_training.ppo.model.process_group import ProcessGroup
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.updates.importance import RatioBounds
from kernel_assistant_training.ppo.updates.kl import KlControl
from kernel_assistant_training.ppo.updates.update import UPDATE, Learner, UpdateOptions

KINDS = ("all", "lora", "shard")


def update(base: Path, trajectories: Path, out: Path, kind: str, together: ProcessGroup) -> None:
    # Threads that wait for each other cost more than they give.
    torch.set_num_threads(1)
    actor = Actor.load(base, together.device, PolicyModelOptions(lora=4 if kind == "lora" else 0))
    reference = actor.reference(base)
    if kind == "shard":
        shard(actor, together)
    # Few tokens at once, so that there are several pieces, and their number is odd. The second update is of
    # trajectories that the first has left behind: nothing is left out for that.
    loose = RatioBounds(low=0.0, high=1e9, impossible=-1e9)
    options = UpdateOptions(rate=1e-3, head_rate=1e-2, steps=2, warmup=1, budget=48, epochs=2, bounds=loose)
    learner = Learner(actor, options, KlControl(0.05), reference=reference, together=together)
    doing = {UPDATE: learner.step_together, WHOLE: actor.whole}
    replies = None
    if kind == "lora":
        replies = DistributedEngine(TransformersEngine(actor, [], rows=4), actor, together)
        doing |= {DECODE: replies.share, LOAD: replies.load_own}
    if not together.main:
        together.follow(doing)
        return
    found = list(TrajectoryStore(trajectories).read(0))
    random = Random(3)
    figures = [learner.update(found, random) for _ in range(2)]
    out.mkdir()
    actor.save(out)
    if replies is not None:
        replies.load(actor)
        asked = [GenerationRequest([7, 8 + number], seed=number, most=5) for number in range(5)]
        (out / "replies.json").write_text(json.dumps([one.ids for one in replies.decode(asked)]))
    (out / "figures.json").write_text(json.dumps([together.count, *figures]))
    together.end()


def main(base: Path, trajectories: Path, out: Path) -> None:
    together = ProcessGroup.begin()
    for kind in KINDS:
        update(base, trajectories, out / kind, kind, together)
    together.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
