"""A stage of PPO: runs its iterations, beginning with the first or after the newest checkpoint."""

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

from kernel_assistant.errors import InternalError, UsageError
from kernel_assistant.records import Tier
from kernel_assistant_training.evaluation.tasks import Task
from kernel_assistant_training.nominal import unbounded
from kernel_assistant_training.ppo.curriculum import CurriculumProgress
from kernel_assistant_training.ppo.engines.engine_options import EngineOptions
from kernel_assistant_training.ppo.model.base import PolicyModelOptions, folder_of
from kernel_assistant_training.ppo.model.policy_model import BEGIN, PolicyModel, PolicyModelSettings, follow
from kernel_assistant_training.ppo.model.process_group import ProcessGroup
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.pool.pool import EvaluationPool, PoolOptions
from kernel_assistant_training.ppo.rewards import highest_tier
from kernel_assistant_training.ppo.rollouts import Rollouts, builders, figures_of
from kernel_assistant_training.ppo.run_folder import PpoRunFolder, PpoState
from kernel_assistant_training.ppo.sources import MixedSource, SourceOptions
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.trajectory import Trajectory
from kernel_assistant_training.ppo.updates.kl import KlControl
from kernel_assistant_training.ppo.updates.update import Learner, Metrics, UpdateOptions
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.saving import naming

#: Settings that change how a model is trained, but not what it learns.
_HOW = ("model", "engine", "shard", "pool", "known")


@dataclass(frozen=True)
class StageOptions:
    """The options of a PPO stage. `base` is the model that the stage begins with. Each iteration plays `episodes`
    episodes of each of `tasks` tasks. The tasks are new in each iteration, unless `prompts` is set: then every
    iteration plays the same `prompts` tasks. `held_out` tasks are played before the first iteration and after every
    `evaluate_every` iterations: one greedy episode of each, or `held_out_episodes` sampled episodes of each.
    `curriculum` is the pass rate from which on tasks with one more operator are drawn; with 0, tasks of all sizes are
    drawn from the beginning. `rows` conversations are decoded together; a checkpoint is kept for every `keep_every`
    iterations. Evaluations in the files `known` are reused. Candidates are timed for the share `timed` of the tasks
    (`Rollouts.play`); with 0 nothing is timed, not even PyTorch. Raises UsageError if that is no share, and if the
    prompt or later replies would need times that are not there.
    """

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
    timed: float = 1.0
    sources: SourceOptions = field(default_factory=SourceOptions)
    play: PlayOptions = field(default_factory=PlayOptions)
    update: UpdateOptions = field(default_factory=UpdateOptions)
    kl: KlControl = field(default_factory=KlControl)
    model: PolicyModelOptions = field(default_factory=PolicyModelOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
    shard: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.timed <= 1:
            raise UsageError(f"--timed {self.timed:g} is no share", "use a number from 0 to 1")
        if self.timed < 1 and self.play.turns > 1:
            raise UsageError("later replies read the times of earlier kernels", "use --timed 1, or --turns 1")
        if self.timed == 0 and self.play.profile != "compact":
            raise UsageError("the full prompt has the time of PyTorch", "use --timed 1, or --profile compact")

    def asked(self) -> dict[str, Any]:
        """Returns the settings that must be the same when a run is started again: all settings that change what is
        learned. The base is not included, because a run continues from its own checkpoints."""
        free = ("base", "out", "iterations", "workers", "rows", "python", "cache", "evaluate_every", "keep_every")
        settings: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str)) | {"sources": self.sources.asked()}
        settings["lora"] = self.model.lora
        if self.timed == 1:
            del settings["timed"]  # as in runs that were begun before it was an option
        return {name: value for name, value in settings.items() if name not in (*free, *_HOW)}


def run(options: StageOptions, given: Sequence[Task] = (), device: torch.device | None = None) -> Path:
    """Runs the stage; returns the folder of the newest checkpoint. If there are `given` tasks, they are played instead
    of drawn tasks. Raises UsageError, MissingError, InternalError and others; an InternalError names the checkpoint
    from which training can continue. With several processes, the first process runs the stage and the other processes
    take part in updates."""
    together = ProcessGroup.begin() if device is None else ProcessGroup(device=device)
    newest = options.out
    if together.main:
        newest = _first(options, given, together)
        together.end()
    else:
        follow(_policy_settings(options, len(given)), together)
    # Not after an error: the others may be in the middle of an update, and the launcher ends them.
    together.close()
    return newest


def _first(options: StageOptions, given: Sequence[Task], together: ProcessGroup) -> Path:
    folder = PpoRunFolder(options.out, options.asked(), options.keep_every)
    with RunControl(options.out, options.stage, at_once=True) as control, naming(folder.named):
        return _run(options, folder, control, given, together)


def _run(
    options: StageOptions, folder: PpoRunFolder, control: RunControl, given: Sequence[Task], together: ProcessGroup
) -> Path:
    sources, latest = MixedSource(options.target, options.sources), folder.latest()
    aside = sources.tasks(options.held_out, Random(f"held out {options.seed}"), wanted="held_out")
    newest, state = latest or (folder_of(options.base), PpoState(kl_coefficient=options.kl.coefficient))
    given = given or (sources.prompts(options.prompts, options.seed) if options.prompts else ())
    begun = (newest, folder.first() or newest, replace(options.kl, coefficient=state.kl_coefficient))
    together.tell(BEGIN, *begun)
    policy = PolicyModel.make(_policy_settings(options, len(given)), *begun, together)
    actor, learner, replies, store = policy.actor, policy.learner, policy.replies, TrajectoryStore(options.out)
    assert replies is not None
    with EvaluationPool(_pool(options)) as pool, closing(replies):
        rollouts = Rollouts(pool, replies, policy.speech, options.seed)
        if latest is None:
            control.report(0, _held_out(options, aside, rollouts, 0))
            newest = folder.save(actor, newest, state)
        while state.iteration < options.iterations and control.goes_on(state.iteration):
            number, began = state.iteration + 1, time.monotonic()
            random = Random(f"{options.stage} {options.seed} {number}")
            learning = state.curriculum
            if options.curriculum and not learning.operators:
                learning = CurriculumProgress(operators=sources.levels()[0])
            refused = sources.refused
            chosen = given or sources.tasks(options.tasks, random, weights=learning.weights)
            played = rollouts.play(chosen, options.episodes, number, options.play, store, options.timed)
            replies.rest()
            learned = _learned(learner, played.trajectories, random)
            replies.load(actor)
            learning = learning.after(_solved(chosen, played.trajectories))
            state = PpoState(
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
            # Before the checkpoint: if the process is killed in between, the iteration is repeated and no line is
            # missing.
            control.report(number, {**figures, "seconds": time.monotonic() - began})
            newest = folder.save(actor, newest, state)
    store.close()
    return newest


def _learned(learner: Learner, trajectories: Sequence[Trajectory], random: Random) -> Metrics:
    """Updates the weights with the episodes that have tokens of the model and are not void (the judge was not lost);
    returns metrics. Raises InternalError if there are no such episodes."""
    usable = [one for one in trajectories if one.actions and not one.void]
    if not usable:
        raise InternalError("no episode of the iteration can be learned from", "see worker-00.log in the run's folder")
    began = time.monotonic()
    metrics = learner.update(usable, random)
    seconds = time.monotonic() - began
    return {**metrics, "update_seconds": seconds, "tokens_per_s": metrics["tokens"] / max(seconds, 1e-9)}


def _solved(chosen: Sequence[Task], trajectories: Sequence[Trajectory]) -> list[tuple[int, bool]]:
    """Returns for each episode that is not void its task's number of operators, and whether a candidate was correct."""
    levels = {task.key: task.level for task in chosen}
    return [(levels[one.key], one.reward.correct) for one in trajectories if not one.void]


def _figures_of(learning: CurriculumProgress) -> Metrics:
    if not learning.operators:
        return {}
    rate = {} if learning.pass_rate is None else {"curriculum_pass_rate": learning.pass_rate}
    return {"curriculum_operators": learning.operators, **rate}


def _held_out(options: StageOptions, aside: Sequence[Task], rollouts: Rollouts, iteration: int) -> Metrics:
    """Plays the held-out tasks `aside` and returns metrics named `held_out_…`, {} without tasks. The random numbers are
    the same each time, so that replies that did not change need no new evaluation."""
    if not aside:
        return {}
    began = time.monotonic()
    sampled = options.held_out_episodes
    heat = options.play.temperature if sampled else 0.0
    own = replace(options.play, temperature=heat)
    timed = 1.0 if options.timed else 0.0
    played = rollouts.play(aside, sampled or 1, 0 if sampled else iteration, own, timed=timed)
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
        most=highest_tier(options.play.scheme, options.play.clock) if options.timed else Tier.verify,
        throughput=options.play.profile == "compact",
        known=options.known,
    )


def _policy_settings(options: StageOptions, given: int) -> PolicyModelSettings:
    played = (given or options.prompts or options.tasks) * options.episodes
    most = max(played, options.held_out * max(options.held_out_episodes, 1))
    return PolicyModelSettings(
        out=options.out,
        rows=min(options.rows, most),
        context=options.play.context,
        model=options.model,
        engine=options.engine,
        update=options.update,
        shard=options.shard,
    )
