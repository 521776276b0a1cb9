"""PPO with the speed reward and three seeds: whether a policy learns to write faster kernels, with every seed.

The model is that of the recipe `smoke` after fine-tuning: half a million parameters, two pointwise operators, answers
with mistakes on purpose. Each seed has prompts of its own, which it plays again and again with the reward `milestone`
on the clock of this machine; held-out tasks are sampled before and after it.

`python -m bench.ppo_seeds --out FOLDER` keeps the runs and, if matplotlib is installed, draws mean and range of the
seeds; with `--baseline others` rewards are compared with those of a task's other episodes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean

from bench.figures import Figure, Settings
from bench.harness import Row, RowFile
from kernel_assistant_training.ppo.updates.update import BASELINES

SEEDS = (0, 1, 2)
ITERATIONS = 12
#: Figures of an iteration.
ROWS = ("reward", "pass_rate", "faster_eager_rate", "faster_compile_rate")
#: The panels of the picture, and what each shows.
PANELS = {
    "Reward": ("reward", "held_out_reward"),
    "Pass rate": ("pass_rate", "held_out_pass_rate"),
    "Faster than torch.compile by 5%": ("faster_compile_rate", "held_out_faster_compile_rate"),
    "KL divergence, nats a token": ("kl_reference", "kl_step"),
    "Entropy, nats a token": ("entropy",),
    "Explained variance of the critic": ("explained_variance",),
}
_PLAY = (
    *("--target", "cpu", "--reward", "milestone", "--only", "log_sigmoid,mish", "--level", "1"),
    *("--prompts", "16", "--episodes", "4", "--reply", "110", "--context", "512", "--rows", "64"),
    *(
        "--held-out",
        "6",
        "--held-out-episodes",
        "8",
        "--evaluate-every",
        "100",
        "--rate",
        "1e-4",
        "--head-rate",
        "1e-3",
    ),
    *("--warm-up", "8", "--steps", "4", "--budget", "1024", "--lam", "1"),
)


def measure(settings: Settings) -> list[Figure]:
    """Only for the CPU, because on a GPU so small a model would wait for the judge."""
    if settings.target != "cpu":
        return []
    with tempfile.TemporaryDirectory() as folder:
        runs = play(Path(folder), SEEDS[: settings.count(3, 1)], settings.count(ITERATIONS, 2))
        return figures([RowFile(run / "metrics.jsonl").read() for run in runs])


def play(out: Path, seeds: Sequence[int], iterations: int, baseline: str = "value") -> list[Path]:
    """Plays all seeds; returns the folder of each seed's run. Existing runs are continued."""
    _run(["kernel_assistant", "train", "--recipe", "smoke", "--out", str(out / "smoke"), "--until", "sft"])
    (base,) = (out / "smoke").glob("*-sft")
    runs = [out / f"{'' if baseline == 'value' else f'{baseline}-'}seed-{seed}" for seed in seeds]
    for seed, run in zip(seeds, runs, strict=True):
        words = ["--base", str(base), "--out", str(run), "--seed", str(seed), "--baseline", baseline, *_PLAY]
        _run(["kernel_assistant_training", "ppo_single", *words, "--iterations", str(iterations)])
    return runs


def figures(runs: Sequence[Sequence[Row]]) -> list[Figure]:
    """The mean over the seeds of each figure, in the first and in the last two iterations; `how` has each seed's
    value."""
    rows = []
    for name in ROWS:
        before = [run[1][name] for run in runs]
        after = [mean(line[name] for line in run[-2:]) for run in runs]
        rows += [_figure(f"{name}, first iteration", before), _figure(f"{name}, last two iterations", after)]
    for word, index in (("before", 0), ("behind", -1)):
        rows.append(_figure(f"held-out reward {word}", [run[index]["held_out_reward"] for run in runs]))
    return rows


def draw(runs: Sequence[Sequence[Row]], file: Path) -> None:
    """Draws the mean of the seeds, and a band from the lowest to the highest. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(12.6, 5.6), layout="constrained")
    for axes, (title, names) in zip(picture.subplots(2, 3).flat, PANELS.items(), strict=True):
        for name in names:
            curves = [{line["step"]: line[name] for line in run if name in line} for run in runs]
            steps = sorted(set.intersection(*map(set, curves)))
            values = [[curve[step] for curve in curves] for step in steps]
            axes.plot(steps, list(map(mean, values)), "--o" if name.startswith("held_out") else "-o", label=name)
            axes.fill_between(steps, list(map(min, values)), list(map(max, values)), alpha=0.2)
        axes.set(title=title, xlabel="step")
        axes.legend()
    picture.savefig(file)


def _figure(name: str, values: Sequence[float]) -> Figure:
    return Figure(name, mean(values), "", how="seeds " + ", ".join(f"{value:.2f}" for value in values))


def _run(words: Sequence[str]) -> None:
    """Runs one seed with one thread for the arithmetic, as in the recipe; the other cores compile."""
    subprocess.run([sys.executable, "-m", *words], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ppo_seeds", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--baseline", choices=BASELINES, default="value")
    options = parser.parse_args()
    runs = play(options.out, options.seeds, options.iterations, options.baseline)
    lines = [RowFile(run / "metrics.jsonl").read() for run in runs]
    for figure in figures(lines):
        sys.stdout.write(f"| {figure.name} | {figure.value:.2f} | {figure.how} |\n")
    if find_spec("matplotlib") is not None:
        draw(lines, options.out / f"{options.baseline}.png")


if __name__ == "__main__":
    main()
