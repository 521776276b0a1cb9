"""Held-out evaluation: `python -m kernel_assistant_training eval --run RUN [--checkpoint N|newest|first|all]`.

Of the checkpoints of a run of PPO as it played, or, with `--base FOLDER ... --out OUT`, of any models' folders. Each
gets a line in `evaluations_held_out.jsonl`; one that is there for the same question is not made again.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import to_builtins
from kernel_assistant_training.episodes.lines import Lines, read_lines
from kernel_assistant_training.nominal import CLOCKS
from kernel_assistant_training.ppo.arguments import add_pool, add_sources, sources_of
from kernel_assistant_training.ppo.checkpoints import WORDS, chosen
from kernel_assistant_training.ppo.evaluating import Evaluated, EvaluateOptions, evaluate
from kernel_assistant_training.ppo.model_arguments import add_engine, engine_of
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.rewards import SCHEMES
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.source import TARGETS
from kernel_assistant_training.synth.narrow import Narrow
from kernel_assistant_training.tracking.curves import EVALUATED

STAGE = "eval"
#: Of a run, what its evaluation writes beside the lines.
FOLDER = "held_out"
#: Of models whose run is not known.
_PLAY = PlayOptions()


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="kernel_assistant_training eval", description=__doc__)
    found.add_argument("--run", type=Path, help="a folder of ppo-single or ppo-agent")
    found.add_argument("--checkpoint", default="newest", help=f"of --run: a number, or {', '.join(WORDS)}")
    found.add_argument("--base", type=Path, nargs="+", default=[], metavar="FOLDER", help="models, instead of --run")
    found.add_argument("--out", type=Path, help="with --base: the folder of what is written; it is continued")
    found.add_argument("--tasks", type=int, default=64, help="of the held-out split")
    found.add_argument("--attempts", type=int, default=8, help="at each: one greedy, the others sampled")
    found.add_argument("--target", choices=TARGETS, help="what --run has, else cuda")
    found.add_argument("--reward", choices=sorted(SCHEMES), help="what --run has, else milestone")
    add_engine(found)
    found.set_defaults(profile=None)
    found.add_argument("--clock", choices=CLOCKS, help="what --run has, else measured")
    for name, what in (
        ("turns", "replies of an episode"),
        ("reply", "tokens of a reply"),
        ("context", "tokens in all"),
    ):
        found.add_argument(f"--{name}", type=int, help=f"{what}: what --run has, else {getattr(_PLAY, name)}")
    found.add_argument("--workers", type=int, default=1, help="processes that judge")
    add_pool(found)
    found.add_argument("--rows", type=int, default=256, help="conversations that are decoded at once")
    found.add_argument("--seed", type=int, default=0)
    add_sources(found)
    return found


def main(words: list[str]) -> None:
    """Prints a line for each model, the last is the newest's."""
    for one in run(parser().parse_args(words)):
        sys.stdout.write(json.dumps(to_builtins(one)) + "\n")


def run(found: argparse.Namespace, cache: Path | None = None) -> list[Evaluated]:
    """Of each model that is asked for, also those that were evaluated before. Raises the project's errors."""
    options = replace(options_of(found), cache=cache)
    file = (found.run or found.out) / EVALUATED
    known = {(one.checkpoint, one.kind): one for one in (read_lines(file, Evaluated) if file.is_file() else ())}
    done = [one for number in options.models if (one := known.get((number, options.kind()))) and _same(one, options)]
    left = {number: model for number, model in options.models.items() if number not in {one.checkpoint for one in done}}
    if not left:
        return done
    lines = Lines(file)
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


def options_of(found: argparse.Namespace) -> EvaluateOptions:
    """Raises UsageError where it is not clear which models, or where to write."""
    if bool(found.run) == bool(found.base) or bool(found.base) != bool(found.out):
        raise UsageError("which models are to be evaluated?", "use --run RUN, or --base FOLDER --out OUT")
    before = _asked(found.run) if found.run else {}
    models = chosen(found.run, found.checkpoint) if found.run else dict(enumerate(found.base))
    names = [one.name for one in fields(PlayOptions) if one.name != "temperature"]
    play = {name: before.get("play", {}).get(name) for name in names}
    typed = {"turns": found.turns, "reply": found.reply, "context": found.context}
    typed |= {"scheme": found.reward, "clock": found.clock, "profile": found.profile}
    play |= {name: value for name, value in typed.items() if value is not None}
    sources, narrow = sources_of(found), before.get("sources", {})
    if sources.narrow.everything and narrow.get("only"):
        sources = replace(sources, narrow=Narrow(frozenset(narrow["only"]), narrow["level"]))
    return EvaluateOptions(
        models=models,
        out=found.run / FOLDER if found.run else found.out,
        target=found.target or before.get("target", "cuda"),
        python=sys.executable,
        tasks=found.tasks,
        attempts=found.attempts,
        seed=found.seed,
        workers=found.workers,
        pool=tuple(found.pool),
        rows=found.rows,
        known=tuple(found.run.glob("evaluations.jsonl")) if found.run else (),
        sources=sources,
        engine=engine_of(found),
        play=PlayOptions(**{name: value for name, value in play.items() if value is not None}),
    )


def _asked(run: Path) -> dict[str, Any]:
    """What a run was asked for."""
    try:
        found: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{run} is no run: {error}", "name the folder of ppo-single or ppo-agent") from error
    return found


def _same(one: Evaluated, options: EvaluateOptions) -> bool:
    return one.asked_tasks == options.tasks and one.attempts == options.attempts


def _figures(one: Evaluated) -> dict[str, float]:
    """As those who watch know them."""
    fast = one.faster_compile_rate
    return {
        "checkpoint": one.checkpoint,
        "held_out_pass_rate": one.pass_rate,
        "held_out_best_pass_rate": one.best_pass_rate,
        "held_out_reward": one.reward,
        "held_out_faster_eager_rate": one.faster_eager_rate,
        **({} if fast is None else {"held_out_faster_compile_rate": fast}),
        "seconds": one.seconds,
    }
