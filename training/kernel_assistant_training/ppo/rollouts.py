"""Plays episodes of tasks with an actor; returns trajectories with rewards."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kernel_assistant_training.evaluation.tasks import Task
from kernel_assistant_training.ppo.chat.chat_format import ChatFormat
from kernel_assistant_training.ppo.ended import endings
from kernel_assistant_training.ppo.engines.engine import Engine
from kernel_assistant_training.ppo.play import IterationContext, PlayOptions, play
from kernel_assistant_training.ppo.pool.pool import EvaluationPool
from kernel_assistant_training.ppo.rewards import faster_than_compile, faster_than_eager
from kernel_assistant_training.ppo.rounds import ConversationSlot, RoundScheduler
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.ppo.trajectory import Trajectory
from kernel_assistant_training.ppo.updates.selection import loops
from kernel_assistant_training.ppo.updates.update import Metrics


@dataclass(frozen=True)
class RolloutBatch:
    """The result of playing episodes. `trajectories` are in the order of tasks and episodes, and include trajectories
    that were stored earlier; `figures` are metrics of generation and evaluation."""

    trajectories: list[Trajectory]
    figures: Metrics


class Rollouts:
    """Plays episodes with an evaluation pool, an engine and a chat format. Generation and evaluation alternate."""

    def __init__(self, pool: EvaluationPool, engine: Engine, speech: ChatFormat, run_seed: int) -> None:
        self._pool, self._engine, self._speech, self._run_seed = pool, engine, speech, run_seed

    def play(
        self,
        tasks: Sequence[Task],
        episodes: int,
        iteration: int,
        options: PlayOptions,
        store: TrajectoryStore | None = None,
        timed: float = 1.0,
    ) -> RolloutBatch:
        """Plays `episodes` episodes of each task that can be evaluated. Each episode is stored when it ends; episodes
        that are already in the store are not played again. Candidates are timed for the share `timed` of the tasks,
        drawn by lot; those for other tasks are only verified, which is cheaper, and earn 1 at most.
        """
        known = {(one.key, one.seed): one for one in store.read(iteration)} if store else {}
        wanted = [(task, number) for task in tasks for number in range(episodes)]
        missing = [(task, number) for task, number in wanted if (task.key, number) not in known]
        began = time.monotonic()
        opened = self._pool.open({task.key: task for task, _ in missing}.values())
        open_seconds = time.monotonic() - began
        setting = IterationContext(self._speech, self._pool.sandbox, options, iteration, self._run_seed, timed)
        playable = [(task, number) for task, number in missing if task.key in opened]

        def ended(_: int, trajectory: Trajectory) -> None:
            known[trajectory.key, trajectory.seed] = trajectory
            if store is not None:
                store.add(trajectory)

        def converse(task: Task, number: int, slot: ConversationSlot) -> Trajectory:
            return play(slot, task, opened[task.key], number, setting)

        before = Counter(judged=self._pool.judged, repeated=self._pool.repeated, void=self._pool.void)
        scheduler = RoundScheduler[Trajectory](self._engine.decode, self._pool.judge)
        scheduler.play([partial(converse, task, number) for task, number in playable], ended)
        after = Counter(judged=self._pool.judged, repeated=self._pool.repeated, void=self._pool.void)
        spent = scheduler.spent
        return RolloutBatch(
            [known[task.key, number] for task, number in wanted if (task.key, number) in known],
            {
                "open_seconds": open_seconds,
                "generate_seconds": spent.generating,
                "judge_seconds": spent.judging,
                "generated_tokens": spent.tokens,
                "generated_tokens_per_s": spent.tokens / max(spent.generating, 1e-9),
                "evaluations": after["judged"] - before["judged"],
                "evaluations_repeated": after["repeated"] - before["repeated"],
                "evaluations_void": after["void"] - before["void"],
                "evaluations_per_s": (after["judged"] - before["judged"]) / max(spent.judging, 1e-9),
                "tasks_not_opened": len({task.key for task, _ in missing}) - len(opened),
            },
        )


def builders() -> int:
    """Returns the number of compilers that run at once on this machine."""
    return max(1, len(os.sched_getaffinity(0)))


def figures_of(trajectories: Sequence[Trajectory]) -> Metrics:
    """Returns metrics of episodes: means, rates, and counts by ending. Rates are shares of episodes; an episode counts
    as faster from a speed-up of 5% on. The rates of faster ones are missing if nothing was timed, and
    `faster_compile_rate` also if the reward does not measure `torch.compile`."""
    count = max(len(trajectories), 1)
    rewards = [one.reward.value for one in trajectories]
    mean = sum(rewards) / count
    measured = {
        "faster_eager_rate": faster_than_eager([one.reward for one in trajectories]),
        "faster_compile_rate": faster_than_compile([one.reward for one in trajectories]),
    }
    return {
        "episodes": len(trajectories),
        "reward": mean,
        "reward_std": (sum((one - mean) ** 2 for one in rewards) / count) ** 0.5,
        "pass_rate": sum(one.reward.correct for one in trajectories) / count,
        **{name: rate for name, rate in measured.items() if rate is not None},
        "episode_turns": sum(one.turns for one in trajectories) / count,
        "episode_tokens": sum(one.length for one in trajectories) / count,
        "episode_actions": sum(one.actions for one in trajectories) / count,
        "void_rate": sum(one.void for one in trajectories) / count,
        "loop_share": sum(map(loops, trajectories)) / count,
        "schema_share": sum("schema" in one.calls for one in trajectories) / count,
        **endings(trajectories),
    }
