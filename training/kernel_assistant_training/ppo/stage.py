"""A stage of PPO, from its first iteration or from where it stopped to its last."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import torch

from kernel_assistant.errors import InternalError
from kernel_assistant_training.nominal import unbounded
from kernel_assistant_training.ppo.base import ModelOptions, folder_of
from kernel_assistant_training.ppo.curriculum import Progress
from kernel_assistant_training.ppo.engine import EngineOptions
from kernel_assistant_training.ppo.kl import KlControl
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.pool import Pool, PoolOptions
from kernel_assistant_training.ppo.rewards import needs_full
from kernel_assistant_training.ppo.rollouts import Rollouts, builders, figures_of
from kernel_assistant_training.ppo.run_folder import RunFolder, State
from kernel_assistant_training.ppo.sources import SourceOptions, Sources
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.tasks import Task
from kernel_assistant_training.ppo.together import Together
from kernel_assistant_training.ppo.trainee import BEGIN, Trainee, TraineeOptions, follow
from kernel_assistant_training.ppo.trajectory import Trajectory
from kernel_assistant_training.ppo.update import Learner, Metrics, UpdateOptions
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.saving import naming

#: What changes how a model is trained, and not what it learns.
_HOW = ("model", "engine", "shard", "pool", "known")


@dataclass(frozen=True)
class StageOptions:
    """`base` is the folder that the stage begins with, `tasks` × `episodes` are played an iteration: other tasks each,
    or with `prompts` always the same so many. With `held_out` tasks, those are played before the first iteration and
    each `evaluate_every`, greedily, or `held_out_episodes` of each are sampled. `curriculum` is the pass rate
    at which tasks of one more operator open, 0 for all at once. `rows` conversations are decoded at once, each
    `keep_every` iterations' checkpoint stays. `given` tasks are played instead of those of `sources`. What the files
    `known` have is not judged again."""

    stage: str
    base: Path
    out: Path
    target: str
    iterations: int = 100
    tasks: int = 32
    episodes: int = 8
    seed: int = 0
    curriculum: float = 0.0
    prompts: int = 0
    held_out: int = 0
    held_out_episodes: int = 0
    evaluate_every: int = 10
    keep_every: int = 0
    workers: int = 1
    pool: tuple[str, ...] = ()
    known: tuple[Path, ...] = ()
    rows: int = 256
    python: str = sys.executable
    cache: Path | None = None
    sources: SourceOptions = field(default_factory=SourceOptions)
    play: PlayOptions = field(default_factory=PlayOptions)
    update: UpdateOptions = field(default_factory=UpdateOptions)
    kl: KlControl = field(default_factory=KlControl)
    model: ModelOptions = field(default_factory=ModelOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
    shard: bool = False

    def asked(self) -> dict[str, Any]:
        """What a second start is held to: all that changes what is learned. The base is its first checkpoint."""
        free = ("base", "out", "iterations", "workers", "rows", "python", "cache", "evaluate_every", "keep_every")
        found: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str)) | {"sources": self.sources.asked()}
        found["lora"] = self.model.lora
        return {name: value for name, value in found.items() if name not in (*free, *_HOW)}


def run(options: StageOptions, given: Sequence[Task] = (), device: torch.device | None = None) -> Path:
    """The newest checkpoint. `given` tasks are played instead of sampled ones. Raises the project's errors, each naming
    where training can go on. Of several processes the first does so, and the others help it with updates."""
    together = Together.begin() if device is None else Together(device=device)
    newest = options.out
    if together.main:
        newest = _first(options, given, together)
        together.end()
    else:
        follow(_trainee(options, len(given)), together)
    # Not after an error: the others may wait in the middle of an update, and whoever launched all ends them.
    together.close()
    return newest


def _first(options: StageOptions, given: Sequence[Task], together: Together) -> Path:
    folder = RunFolder(options.out, options.asked(), options.keep_every)
    with RunControl(options.out, options.stage, at_once=True) as control, naming(folder.named):
        return _run(options, folder, control, given, together)


def _run(
    options: StageOptions, folder: RunFolder, control: RunControl, given: Sequence[Task], together: Together
) -> Path:
    sources, found = Sources(options.target, options.sources), folder.latest()
    aside = sources.tasks(options.held_out, Random(f"held out {options.seed}"), wanted="held_out")
    newest, state = found or (folder_of(options.base), State(kl_coefficient=options.kl.coefficient))
    given = given or (sources.prompts(options.prompts, options.seed) if options.prompts else ())
    begun = (newest, folder.first() or newest, replace(options.kl, coefficient=state.kl_coefficient))
    together.tell(BEGIN, *begun)
    trainee = Trainee.make(_trainee(options, len(given)), *begun, together)
    actor, learner, replies, store = trainee.actor, trainee.learner, trainee.replies, TrajectoryStore(options.out)
    assert replies is not None
    with Pool(_pool(options)) as pool, closing(replies):
        rollouts = Rollouts(pool, replies, trainee.speech, options.seed)
        if found is None:
            control.report(0, _held_out(options, aside, rollouts, 0))
            newest = folder.save(actor, newest, state)
        while state.iteration < options.iterations and control.goes_on(state.iteration):
            number, began = state.iteration + 1, time.monotonic()
            random = Random(f"{options.stage} {options.seed} {number}")
            learning = state.curriculum
            if options.curriculum and not learning.operators:
                learning = Progress(operators=sources.levels()[0])
            refused = sources.refused
            chosen = given or sources.tasks(options.tasks, random, weights=learning.weights)
            played = rollouts.play(chosen, options.episodes, number, options.play, store)
            replies.rest()
            learned = _learned(learner, played.trajectories, random)
            replies.load(actor)
            learning = learning.after(_solved(chosen, played.trajectories))
            state = State(
                iteration=number,
                kl_coefficient=learner.control.coefficient,
                optimiser_steps=state.optimiser_steps + int(learned["optimiser_steps"]),
                episodes=state.episodes + len(played.trajectories),
                tokens=state.tokens + int(learned["tokens"]),
                seconds=state.seconds + time.monotonic() - began,
                curriculum=learning.looked_at(options.curriculum, sources.levels()),
            )
            figures = {**figures_of(played.trajectories), **played.figures, **learned}
            figures |= {"tasks_refused": sources.refused - refused, **_figures_of(learning)}
            if number % options.evaluate_every == 0 or number == options.iterations:
                figures |= _held_out(options, aside, rollouts, number)
            # Before the checkpoint: whoever is killed between them does both again, and no line is missing.
            control.report(number, {**figures, "seconds": time.monotonic() - began})
            newest = folder.save(actor, newest, state)
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


def _solved(chosen: Sequence[Task], found: Sequence[Trajectory]) -> list[tuple[int, bool]]:
    """Of each episode that says something, the operators of its task and whether a candidate was right."""
    levels = {task.key: task.level for task in chosen}
    return [(levels[one.key], one.reward.correct) for one in found if not one.void]


def _figures_of(learning: Progress) -> Metrics:
    if not learning.operators:
        return {}
    rate = {} if learning.pass_rate is None else {"curriculum_pass_rate": learning.pass_rate}
    return {"curriculum_operators": learning.operators, **rate}


def _held_out(options: StageOptions, aside: Sequence[Task], rollouts: Rollouts, iteration: int) -> Metrics:
    """Episodes on tasks that no iteration plays, the same ones with the same random numbers each time: what the policy
    still writes as before was judged before."""
    if not aside:
        return {}
    began = time.monotonic()
    sampled = options.held_out_episodes
    heat = options.play.temperature if sampled else 0.0
    played = rollouts.play(aside, sampled or 1, 0 if sampled else iteration, replace(options.play, temperature=heat))
    figures = figures_of(played.trajectories)
    names = ("reward", "pass_rate", "faster_compile_rate")
    named = {f"held_out_{name}": figures[name] for name in names if name in figures}
    return {**named, "held_out_seconds": time.monotonic() - began}


def _pool(options: StageOptions) -> PoolOptions:
    nominal = options.play.clock == "nominal"
    return PoolOptions(
        target=options.target,
        out=options.out,
        cache=unbounded(options.target, options.out) if nominal else options.cache or options.out,
        python=options.python,
        workers=options.workers,
        pool=options.pool,
        builders=builders(),
        quick_only=not needs_full(options.play.scheme),
        known=options.known,
    )


def _trainee(options: StageOptions, given: int) -> TraineeOptions:
    played = (given or options.prompts or options.tasks) * options.episodes
    most = max(played, options.held_out * max(options.held_out_episodes, 1))
    return TraineeOptions(
        out=options.out,
        rows=min(options.rows, most),
        context=options.play.context,
        model=options.model,
        engine=options.engine,
        update=options.update,
        shard=options.shard,
    )
