"""Which figures are drawn together: a panel for each question that a run is asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How values are shown: as they are; from 0 as shares of 1; on a logarithmic axis where they span more than
    a decade; added to each other; from -1 to 1, since what lies below says no more; as whole numbers that stay."""

    plain = "plain"
    share = "share"
    log = "log"
    added = "added"
    variance = "variance"
    whole = "whole"


@dataclass(frozen=True)
class Panel:
    """`figures` are names of metrics and what the legend calls them, in the order of colours; `unit` of the axis."""

    title: str
    unit: str
    figures: Mapping[str, str]
    kind: Kind = Kind.plain


#: What nobody needs to be told where it stands alone.
TRAINING = "training"
_HELD_OUT = "held out"
PANELS = (
    Panel("Reward", "mean of the episodes", {"reward": TRAINING, "held_out_reward": _HELD_OUT}),
    Panel(
        "Pass rate",
        "episodes with a right kernel",
        {"pass_rate": TRAINING, "curriculum_pass_rate": "tasks of most operators", "held_out_pass_rate": _HELD_OUT},
        Kind.share,
    ),
    Panel(
        "Faster by 5% or more",
        "episodes",
        {
            "faster_eager_rate": "than eager",
            "faster_compile_rate": "than torch.compile",
            "held_out_faster_compile_rate": "than torch.compile, held out",
        },
        Kind.share,
    ),
    Panel(
        "Loss",
        "as it is minimised, nats a token",
        {"loss": "all", "answer_loss": "answers", "prompt_loss": "prompts"},
        Kind.log,
    ),
    Panel("Right tokens", "of the answers", {"answer_right": TRAINING}, Kind.share),
    Panel(
        "KL divergence",
        "nats a token",
        {"kl_reference": "from the start", "kl_step": "of a step", "kl_sampler": "of the sampler"},
    ),
    Panel("Entropy of the policy", "nats a token", {"entropy": TRAINING}),
    Panel(
        "Explained variance of the critic",
        "1 at best, −1 or less at worst",
        {"train_explained_variance": "tasks it learned from", "explained_variance": "not learned from yet"},
        Kind.variance,
    ),
    Panel("Length of an episode", "tokens", {"episode_tokens": "all", "episode_actions": "written by the model"}),
    Panel(
        "Replies that lead nowhere",
        "episodes that have one",
        {"loop_share": "repeats itself", "schema_share": "cannot be read"},
        Kind.share,
    ),
    Panel(
        "Episodes without a right kernel",
        "episodes by how they ended",
        {
            "ended_wrong": "wrong values",
            "ended_not_compiled": "did not compile",
            "ended_crashed": "crashed",
            "ended_unread": "cannot be read",
            "ended_cut_off": "out of tokens",
        },
    ),
    Panel("Replies of an episode", "replies", {"episode_turns": TRAINING}),
    Panel(
        "Time of an iteration",
        "seconds",
        {
            "open_seconds": "opening tasks",
            "generate_seconds": "generating",
            "judge_seconds": "judging",
            "update_seconds": "updating",
        },
        Kind.added,
    ),
    Panel("Operators of a task", "at most", {"curriculum_operators": "curriculum"}, Kind.whole),
    Panel("Losses of PPO", "as they are minimised", {"policy_loss": "policy", "value_loss": "value"}),
    Panel("Values and returns", "mean of the tokens", {"value_mean": "values", "return_mean": "returns"}),
    Panel(
        "Guards",
        "tokens, or episodes left out",
        {
            "clipped_share": "clipped",
            "ratio_capped_share": "ratio bounded",
            "ratio_left_out_share": "left out",
            "void_rate": "void",
        },
        Kind.share,
    ),
    Panel(
        "Tokens a second", "tokens/s", {"generated_tokens_per_s": "generated", "tokens_per_s": "learned from"}, Kind.log
    ),
    Panel("Evaluations a second", "1/s", {"evaluations_per_s": "judged"}),
    Panel("Norm of the gradient", "before clipping", {"gradient_norm": TRAINING}, Kind.log),
    Panel("Learning rate", "of the optimiser", {"rate": TRAINING, "learning_rate": TRAINING}),
    Panel("Data", "so far", {"tasks": "tasks", "rows": "labels"}),
    Panel("Candidates that are tasks", "of all", {"kept_rate": "kept"}, Kind.share),
    Panel("Rate of data", "a minute", {"candidates_per_min": "candidates", "rows_per_min": "labels"}),
)
#: Of checkpoints, beside each other: docs/training.md, "Evaluating checkpoints".
EVALUATIONS = (
    Panel(
        "Pass rate",
        "held-out tasks with a right kernel",
        {"pass_rate": "first attempt", "best_pass_rate": "best of all attempts"},
        Kind.share,
    ),
    Panel(
        "Faster by 5% or more",
        "held-out tasks, best attempt",
        {"faster_eager_rate": "than eager", "faster_compile_rate": "than torch.compile"},
        Kind.share,
    ),
    Panel("Reward", "mean of the tasks", {"reward": "first attempt", "best_reward": "best of all attempts"}),
)
#: Of a whole pipeline, over its time.
OVERVIEW = (
    Panel(
        "Loss", "as it is minimised", {"loss": "all", "answer_loss": "answers", "value_loss": "value head"}, Kind.log
    ),
    PANELS[0],
    PANELS[1],
    PANELS[2],
)
