"""The figures that a loop reports, read back by TensorBoard itself."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kernel_assistant.errors import StoreError, UsageError
from kernel_assistant_training.__main__ import main
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.tracking.events import SETTING, Events, tag

pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install 'kernel-assistant[train]'")


@pytest.fixture(autouse=True)
def no_setting(monkeypatch):
    # Set before it is deleted, so that what a test's own code sets is taken back too.
    monkeypatch.setenv(SETTING, "")


def scalars(run: Path, stage: str) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run / "tensorboard" / stage)).Reload()
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_every_figure_is_an_event_and_a_later_start_counts(tmp_path):
    with RunControl(tmp_path, "ppo_single") as control:
        for step in range(4):
            figures = {"reward": step / 4, "episodes": 12, "note": "text", "kl_step": float("nan"), "done": True}
            control.report(step, figures)
            # Nothing waits for the end: a process that is killed has written all of it.
            assert len(scalars(tmp_path, "ppo_single")["reward/reward"]) == step + 1
    with RunControl(tmp_path, "ppo_single") as control:
        control.report(2, {"reward": 0.9, "entropy": 1.5})
    with RunControl(tmp_path, "rft") as control:
        control.report(0, {"loss": 3.0})
    # Step 3 was behind the checkpoint that the second start began with.
    assert scalars(tmp_path, "ppo_single") == {
        "reward/reward": [(0, 0.0), (1, 0.25), (2, pytest.approx(0.9))],
        "episodes/episodes": [(0, 12.0), (1, 12.0)],
        "policy/entropy": [(2, 1.5)],
    }
    assert scalars(tmp_path, "rft") == {"loss/loss": [(0, 3.0)]}
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 6


def test_events_can_be_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv(SETTING, "0")
    with RunControl(tmp_path, "sft") as control:
        control.report(0, {"loss": 3.0})
    assert not (tmp_path / "tensorboard").exists()
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["loss"] == 3.0
    monkeypatch.setenv(SETTING, "yes")
    with pytest.raises(UsageError, match="is 'yes'"):
        RunControl(tmp_path, "sft")


def test_the_words_are_known_by_every_stage(capsys):
    assert main(["sft", "--no-tensorboard", "--help"]) == 0
    assert capsys.readouterr().out and os.environ[SETTING] == "0"


def test_figures_that_answer_one_question_are_together():
    for question, figures in {
        "reward": "reward held_out_reward held_out_best_reward",
        "right": "pass_rate curriculum_pass_rate held_out_pass_rate held_out_best_pass_rate",
        "fast": "faster_eager_rate faster_compile_rate held_out_faster_compile_rate",
        "loss": "loss answer_loss prompt_loss policy_loss value_loss answer_right gradient_norm rate learning_rate",
        "policy": "kl_reference kl_step kl_sampler entropy clipped_share ratio_capped_share ratio_left_out_share",
        "critic": "explained_variance train_explained_variance value_mean return_mean",
        "episodes": "episode_tokens episode_actions episode_turns ended_wrong ended_cut_off loop_share void_rate",
        "data": "tasks rows kept_rate curriculum_operators left_out_equal",
        "time": "open_seconds held_out_seconds seconds tokens_per_s evaluations_per_s candidates_per_min",
        "other": "checkpoint optimiser_steps",
    }.items():
        assert [tag(name) for name in figures.split()] == [f"{question}/{name}" for name in figures.split()]


def test_a_full_disk_is_an_error_at_once(tmp_path):
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "sft").write_text("no folder")
    with pytest.raises(StoreError, match="cannot write"):
        Events(tmp_path, "sft").add(0, 1.0, {"loss": 2.5})
