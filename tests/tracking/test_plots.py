"""Plots of invented runs: they show the reported figures, for any number of points."""

from __future__ import annotations

import json
import math
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant_training.__main__ import main
from kernel_assistant_training.options.data import PlotArguments

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'kernel-assistant[train]'")
from kernel_assistant_training.tracking.curves import MARKED, StageCurves, read_stages, together
from kernel_assistant_training.tracking.draw import seconds
from kernel_assistant_training.tracking.plot import main as plot
from kernel_assistant_training.tracking.plot import write_plots

pytestmark = pytest.mark.programs


def write(folder, stage, rows, *, begin=1000.0, every=10.0, name="metrics.jsonl"):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"stage": stage, "step": step, "time": begin + step * every, **figures} for step, figures in rows]
    with (folder / name).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def ppo(steps, lift=0.0):
    for step in range(steps + 1):
        share = 1 - math.exp(-3 * step / steps)
        figures = {
            "reward": -1 + 2 * share + lift,
            "pass_rate": share,
            "kl_step": 0.01,
            "explained_variance": -5 + share,
        }
        figures |= {"open_seconds": 1.0, "generate_seconds": 3.0, "judge_seconds": 5.0, "update_seconds": 2.0}
        figures |= {"entropy": 1 - share / 2}
        figures |= {"episode_turns": 2.5, "curriculum_operators": 1 + step // (steps // 2 or 1)}
        yield step, figures | ({"held_out_reward": share + lift} if step % max(1, steps // 3) == 0 else {})


def texts(svg):
    return {one.text for one in ET.parse(svg).iter("{http://www.w3.org/2000/svg}text")}


@pytest.mark.parametrize("steps", [3, MARKED + 20, 5000])
def test_a_page_has_a_panel_for_each_question_that_the_run_answers(tmp_path, steps):
    write(tmp_path, "ppo_agent", ppo(steps))
    paths = write_plots(tmp_path)
    assert [path.name for path in paths] == ["ppo_agent.png", "ppo_agent.svg"]
    said = texts(paths[1])
    assert {"Reward", "mean of the episodes", "held out", "Pass rate", "Time of an iteration", "seconds"} <= said
    assert {"Entropy of the policy", "nats a token", "Explained variance of the critic", "step"} <= said
    assert "Loss" not in said and "Length of an episode" not in said, "nothing was reported of these"
    assert paths[1].stat().st_size < 700_000
    before = paths[1].read_bytes()
    write_plots(tmp_path)
    assert paths[1].read_bytes() == before


def test_a_step_that_was_written_again_counts_with_its_later_line(tmp_path):
    write(
        tmp_path, "sft", [(0, {"loss": 3.0}), (1, {"loss": 2.0}), (2, {"loss": 9.0}), (2, {"loss": 1.0, "note": "x"})]
    )
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "sft", "time": 2000, "options": {}}\n{"stage": "sft", "st')
    (stage,) = read_stages(tmp_path)
    assert stage.runs[0].to_dict() == {"loss": {0: 3.0, 1: 2.0, 2: 1.0}}


def test_seeds_are_a_mean_and_a_range_over_what_all_have(tmp_path):
    for seed, last in enumerate((4, 6, 8)):
        rows = [(step, {"reward": float(seed), "rate": 1.0}) for step in range(0, last + 1, 2)]
        write(tmp_path / str(seed), "ppo_single", rows)
    write(tmp_path / "0", "ppo_single", [(1, {"entropy": 1.0})])
    runs = [read_stages(tmp_path / str(seed))[0] for seed in range(3)]
    found = together(runs)
    assert "reward" in found and "rate" in found
    assert "entropy" not in found, "it is in one run alone"
    assert found.spread("reward").to_dict() == {
        "mean": {0: 1, 2: 1, 4: 1},
        "low": {0: 0, 2: 0, 4: 0},
        "high": {0: 2, 2: 2, 4: 2},
    }
    assert main(["plot", *(str(tmp_path / str(seed)) for seed in range(3)), "--out", str(tmp_path / "seeds")]) == 0
    assert "mean of 3 runs; the band is from the lowest to the highest" in texts(tmp_path / "seeds" / "ppo_single.svg")


def test_a_moving_mean_keeps_what_is_constant_and_follows_what_is_not():
    def spread(*values):
        return StageCurves("sft", (pd.DataFrame({"loss": values}),), pd.Series()).spread("loss")

    flat = spread(*[2.5] * 5000)
    assert flat.to_numpy().ravel().tolist() == [2.5] * flat.size and len(flat) <= 300
    line = spread(*(3.0 * step for step in range(5000))).loc[100:4900]
    assert line["mean"].tolist() == pytest.approx([3.0 * step for step in line.index])
    assert (line["low"] < line["mean"]).all() and (line["mean"] < line["high"]).all()


def test_a_pipeline_has_its_stages_one_after_another(tmp_path):
    run = tmp_path / "small"
    write(run / "02-pretrain", "pretrain", [(step, {"answer_loss": 9.0 - step}) for step in range(9)], begin=100)
    write(run / "05-rft", "trajectories", [(1, {"reward": 0.5})], begin=300)
    write(run / "05-rft" / "model", "rft", [(step, {"loss": 1.0}) for step in range(3)], begin=320)
    write(run / "07-ppo-agent", "ppo_agent", ppo(12), begin=9000)
    evaluated = [{"checkpoint": number, "pass_rate": 0.5, "best_pass_rate": 0.75, "time": 1.0} for number in (0, 12)]
    (run / "07-ppo-agent" / "evaluations_held_out.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in evaluated)
    )
    write(run, "ppo-agent", [(0, {"reward": 99.0})])
    names = {path.stem for path in write_plots(run)}
    pages = ["02-pretrain", "05-rft", "05-rft-trajectories", "07-ppo-agent", "07-ppo-agent-evaluations", "overview"]
    assert sorted(names) == pages
    said = texts(run / "plots" / "overview.svg")
    assert {"pretrain", "rft", "ppo-agent", "minutes of training, without pauses", "Loss", "Reward"} <= said
    assert "best of all attempts" in texts(run / "plots" / "07-ppo-agent-evaluations.svg")
    # A night between two lines is no time of training.
    (stage,) = read_stages(run / "07-ppo-agent")
    times = stage.times.copy()
    times.iloc[6:] += 30_000
    assert seconds(times).iloc[-1] == pytest.approx(130)


def test_what_cannot_be_drawn_is_said(tmp_path):
    with pytest.raises(UsageError, match="has no figures"):
        write_plots(tmp_path)
    with pytest.raises(UsageError, match="is no folder"):
        write_plots(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no folder in common"):
        plot(PlotArguments(runs=(tmp_path, tmp_path)))
