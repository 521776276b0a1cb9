"""A stage of PPO, from its first iteration or from where it stopped to its last."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import torch

from kernel_assistant.errors import InternalError
from kernel_assistant.serving.template import TURN_END
from kernel_assistant_training.ppo.actor import Actor
from kernel_assistant_training.ppo.engine import engine
from kernel_assistant_training.ppo.kl import KlControl
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.pool import Pool, PoolOptions
from kernel_assistant_training.ppo.rewards import needs_full
from kernel_assistant_training.ppo.rollouts import Rollouts, builders, figures_of
from kernel_assistant_training.ppo.run_folder import RunFolder, State
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.tasks import Task, most_level, tasks
from kernel_assistant_training.ppo.trajectory import Trajectory
from kernel_assistant_training.ppo.update import Learner, Metrics, UpdateOptions
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.tokenizer import id_of, load


@dataclass(frozen=True)
class StageOptions:
    """`base` is the folder that the stage begins with, `tasks` × `episodes` are played an iteration. With `held_out`
    tasks, those are played greedily before the first iteration and each `evaluate_every`. `curriculum` iterations lead
    from one operator to five. `rows` conversations are decoded at once. `given` tasks are played instead of sampled."""

    stage: str
    base: Path
    out: Path
    target: str
    iterations: int = 100
    tasks: int = 32
    episodes: int = 8
    seed: int = 0
    curriculum: int = 0
    held_out: int = 0
    evaluate_every: int = 10
    workers: int = 1
    rows: int = 256
    python: str = sys.executable
    cache: Path | None = None
    play: PlayOptions = field(default_factory=PlayOptions)
    update: UpdateOptions = field(default_factory=UpdateOptions)
    kl: KlControl = field(default_factory=KlControl)

    def asked(self) -> dict[str, Any]:
        """What a second start is held to: all that changes what is learned. The base is its first checkpoint."""
        free = ("base", "out", "iterations", "workers", "rows", "python", "cache", "evaluate_every")
        found: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return {name: value for name, value in found.items() if name not in free}


def run(options: StageOptions, given: Sequence[Task] = (), device: torch.device | None = None) -> Path:
    """The newest checkpoint. `given` tasks are played instead of sampled ones. Raises the project's errors, each naming
    where training can go on."""
    folder = RunFolder(options.out, options.asked())
    with RunControl(options.out, options.stage, at_once=True) as control:
        try:
            return _run(options, folder, control, given, device or _device())
        except InternalError as error:
            raise type(error)(f"{error.cause}; {folder.named()}", error.next_step) from error


def _run(
    options: StageOptions, folder: RunFolder, control: RunControl, given: Sequence[Task], device: torch.device
) -> Path:
    found = folder.latest()
    newest, state = found or (options.base, State(kl_coefficient=options.kl.coefficient))
    actor = Actor.load(newest, device)
    reference = Actor.load(folder.first() or options.base, device) if options.kl.coefficient else None
    held = replace(options.kl, coefficient=state.kl_coefficient)
    learner = Learner(actor, options.update, held, reference=reference)
    tokenizer, store = load(), TrajectoryStore(options.out)
    most = max((len(given) or options.tasks) * options.episodes, options.held_out)
    replies = engine(actor, id_of(tokenizer, TURN_END), rows=min(options.rows, most), context=options.play.context)
    with Pool(_pool(options)) as pool:
        rollouts = Rollouts(pool, replies, tokenizer, options.seed)
        if found is None:
            control.report(0, _held_out(options, rollouts, 0))
            newest = folder.save(actor, options.base, state)
        while state.iteration < options.iterations and control.goes_on(state.iteration):
            number, began = state.iteration + 1, time.monotonic()
            random = Random(f"{options.stage} {options.seed} {number}")
            level = most_level(number, options.curriculum)
            chosen = given or tasks(options.target, options.tasks, random, most_level=level)
            played = rollouts.play(chosen, options.episodes, number, options.play, store)
            learned = _learned(learner, played.trajectories, random)
            replies.load(actor)
            state = State(
                iteration=number,
                kl_coefficient=learner.control.coefficient,
                optimiser_steps=state.optimiser_steps + int(learned["optimiser_steps"]),
                episodes=state.episodes + len(played.trajectories),
                tokens=state.tokens + int(learned["tokens"]),
                seconds=state.seconds + time.monotonic() - began,
            )
            figures = {**figures_of(played.trajectories), **played.figures, **learned}
            if number % options.evaluate_every == 0 or number == options.iterations:
                figures |= _held_out(options, rollouts, number)
            newest = folder.save(actor, newest, state)
            control.report(number, {**figures, "seconds": time.monotonic() - began})
    store.close()
    return newest


def _learned(learner: Learner, found: Sequence[Trajectory], random: Random) -> Metrics:
    """An update on what can be learned from. Raises InternalError where nothing can."""
    usable = [one for one in found if one.actions and not one.void]
    if not usable:
        raise InternalError("no episode of the iteration can be learned from", "see worker-00.log in the run's folder")
    began = time.monotonic()
    metrics = learner.update(usable, random)
    seconds = time.monotonic() - began
    return {**metrics, "update_seconds": seconds, "tokens_per_s": metrics["tokens"] / max(seconds, 1e-9)}


def _held_out(options: StageOptions, rollouts: Rollouts, iteration: int) -> Metrics:
    """Greedy episodes on tasks that no iteration plays, the same ones each time."""
    if not options.held_out:
        return {}
    chosen = tasks(options.target, options.held_out, Random(f"held out {options.seed}"), wanted="held_out")
    played = rollouts.play(chosen, 1, iteration, replace(options.play, temperature=0.0))
    figures = figures_of(played.trajectories)
    return {f"held_out_{name}": figures[name] for name in ("reward", "pass_rate", "faster_compile_rate")}


def _pool(options: StageOptions) -> PoolOptions:
    return PoolOptions(
        target=options.target,
        out=options.out,
        cache=options.cache or options.out,
        python=options.python,
        workers=options.workers,
        builders=builders(),
        quick_only=not needs_full(options.play.scheme),
    )


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
