"""Held-out evaluation: `python -m kernel_assistant_training eval --run RUN [--checkpoint N|newest|first|all]`.

Evaluates the checkpoints of a PPO run with the options of that run or, with `--base FOLDER ... --out OUT`, the models
in any folders. Each model gets a line in `evaluations_held_out.jsonl`; models that have a line with the same options
are not evaluated again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import to_builtins
from kernel_assistant_training.episodes.lines import EpisodeFile, read_lines
from kernel_assistant_training.options.checkpoints import chosen
from kernel_assistant_training.options.stages import EvalArguments
from kernel_assistant_training.ppo.arguments import engine_of, sources_of
from kernel_assistant_training.ppo.evaluating import EvaluateOptions, ModelScore, evaluate
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.sources import SourceOptions
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.synth.narrow import Narrow
from kernel_assistant_training.tracking import EVALUATED

STAGE = "eval"
#: The folder below a run's for further files of its evaluation.
FOLDER = "held_out"


def main(options: EvalArguments) -> None:
    """Runs the evaluation and prints a line for each model, in the order of the checkpoints' numbers."""
    for one in run(options):
        sys.stdout.write(json.dumps(to_builtins(one)) + "\n")


def run(arguments: EvalArguments, cache: Path | None = None) -> list[ModelScore]:
    """Returns the scores of all requested models, earlier results included; writes new scores to the results file.
    `cache` is the folder with the device's bandwidths. Raises UsageError, MissingError and other errors of the
    project."""
    options = replace(options_of(arguments), cache=cache)
    file = (options.out.parent if arguments.run else options.out) / EVALUATED
    known = {(one.checkpoint, one.kind): one for one in (read_lines(file, ModelScore) if file.is_file() else ())}
    done = [one for number in options.models if (one := known.get((number, options.kind()))) and _same(one, options)]
    left = {number: model for number, model in options.models.items() if number not in {one.checkpoint for one in done}}
    if not left:
        return done
    lines = EpisodeFile(file)
    options.out.mkdir(parents=True, exist_ok=True)
    with RunControl(options.out, STAGE, at_once=True) as control:
        for step, one in enumerate(evaluate(replace(options, models=left)), len(known) + 1):
            lines.add(one)
            done.append(one)
            control.report(step, _figures(one))
            if not control.goes_on(step):
                break
    lines.close()
    return sorted(done, key=lambda one: one.checkpoint)


def options_of(arguments: EvalArguments) -> EvaluateOptions:
    """Returns the options of an evaluation. Raises UsageError if it is not clear which models to evaluate or where to
    write the results."""
    folder = arguments.out if arguments.run is None else arguments.run / FOLDER
    if folder is None or bool(arguments.run) == bool(arguments.base) or bool(arguments.base) != bool(arguments.out):
        raise UsageError("which models are to be evaluated?", "use --run RUN, or --base FOLDER --out OUT")
    before = _asked(arguments.run) if arguments.run else {}
    models = chosen(arguments.run, arguments.checkpoint) if arguments.run else dict(enumerate(arguments.base))
    names = [one.name for one in fields(PlayOptions) if one.name != "temperature"]
    play = {name: before.get("play", {}).get(name) for name in names}
    typed: dict[str, object] = {"turns": arguments.turns, "reply": arguments.reply, "context": arguments.context}
    typed |= {"scheme": arguments.reward, "clock": arguments.clock, "profile": arguments.profile}
    play |= {name: value for name, value in typed.items() if value is not None}
    sources, played = sources_of(arguments), before.get("sources", {})
    none_named = replace(sources, narrow=Narrow()) == SourceOptions()
    if sources.narrow.everything and played.get("only"):
        sources = replace(sources, narrow=Narrow(frozenset(played["only"]), played["level"]))
    if none_named and "synthesis" in played and not played["shards"]:
        sources = replace(sources, synthesis=played["synthesis"], traced=played.get("traced", 0.0))
    return EvaluateOptions(
        models=models,
        out=folder,
        target=arguments.target or before.get("target", "cuda"),
        python=sys.executable,
        tasks=arguments.tasks,
        attempts=arguments.attempts,
        seed=arguments.seed,
        workers=arguments.workers,
        pool=arguments.pool,
        rows=arguments.rows,
        known=tuple(arguments.run.glob("evaluations.jsonl")) if arguments.run else (),
        sources=sources,
        engine=engine_of(arguments),
        play=PlayOptions(**{name: value for name, value in play.items() if value is not None}),
    )


def _asked(run: Path) -> dict[str, Any]:
    """Returns the options with which the run in a folder was started, from its `run.json`. Raises UsageError if the
    folder has no run."""
    try:
        options: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{run} is no run: {error}", "name the folder of ppo-single or ppo-agent") from error
    return options


def _same(one: ModelScore, options: EvaluateOptions) -> bool:
    return one.asked_tasks == options.tasks and one.attempts == options.attempts


def _figures(one: ModelScore) -> dict[str, float]:
    """Returns the fields of a score as metrics, by name."""
    fast = one.faster_compile_rate
    return {
        "checkpoint": one.checkpoint,
        "held_out_pass_rate": one.pass_rate,
        "held_out_best_pass_rate": one.best_pass_rate,
        "held_out_reward": one.reward,
        "held_out_best_reward": one.best_reward,
        "held_out_faster_eager_rate": one.faster_eager_rate,
        **({} if fast is None else {"held_out_faster_compile_rate": fast}),
        "seconds": one.seconds,
    }
