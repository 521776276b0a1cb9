"""Options of stages as click reads them: names, defaults, several words, and what is refused in a line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant_training.__main__ import main
from kernel_assistant_training.options import stages
from kernel_assistant_training.options.command_line import parse
from kernel_assistant_training.options.data import EpisodesArguments

PLAYS = ["--base", "x", "--out", "y"]


def test_defaults_are_those_of_the_dataclass():
    assert parse(stages.PretrainOptions, "pretrain", ["--out", "y"]) == stages.PretrainOptions(out=Path("y"))
    assert parse(stages.PpoAgentArguments, "ppo-agent", PLAYS) == stages.PpoAgentArguments(
        base=Path("x"), out=Path("y")
    )
    assert (stages.PpoSingleArguments.turns, stages.PpoAgentArguments.turns) == (1, 8)


def test_an_option_of_several_takes_the_words_up_to_the_next_and_may_be_repeated():
    words = ["--base", "x", "--episodes", "a", "b", "--out", "y", "--episodes", "c", "--target", "cpu"]
    options = parse(stages.SftArguments, "sft", words)
    assert options.episodes == (Path("a"), Path("b"), Path("c")) and options.target == ("cpu",)
    assert parse(stages.SftArguments, "sft", words[:-2]).target == ("cuda", "cpu")
    assert parse(stages.EvalArguments, "eval", ["--base=x", "--out", "y"]).base == (Path("x"),)


def test_an_empty_list_is_accepted_where_a_shell_may_find_no_files():
    options = parse(stages.RftArguments, "rft", [*PLAYS, "--known", "--trajectories", "--rows", "3"])
    assert (options.known, options.trajectories, options.rows) == ((), (), 3)
    with pytest.raises(UsageError, match="'--pool' requires an argument"):
        parse(stages.RftArguments, "rft", [*PLAYS, "--pool", "--rows", "3"])


def test_numbers_below_zero_words_with_dashes_and_switches():
    words = [*PLAYS, "--max-steps", "-1", "--vllm-arguments", "--max-model-len 9", "--no-checkpointing"]
    options = parse(stages.RftArguments, "rft", words)
    assert (options.steps, options.vllm_arguments, options.checkpointing) == (-1, "--max-model-len 9", False)
    assert parse(stages.RftArguments, "rft", PLAYS).checkpointing is None


@pytest.mark.parametrize(
    ("options", "words", "cause"),
    [
        (stages.PpoAgentArguments, ["--out", "y"], "Missing option '--base'."),
        (stages.PpoAgentArguments, [*PLAYS, "--rounds", "3"], "No such option '--rounds'."),
        (stages.PpoAgentArguments, [*PLAYS, "--tasks", "few"], "'few' is not a valid integer."),
        (stages.PpoAgentArguments, [*PLAYS, "--reward", "much"], "'much' is not one of"),
        (stages.PpoAgentArguments, [*PLAYS, "--pool", "local", "ssh://"], "ssh://"),
        (EpisodesArguments, ["--target", "cpu", "--seconds", "1", "--out", __file__], "is a file"),
    ],
)
def test_what_is_refused_is_named_in_a_line(options, words, cause):
    with pytest.raises(UsageError) as refused:
        parse(options, "stage", words)
    assert cause in refused.value.cause and "\n" not in refused.value.cause and refused.value.next_step


def test_the_command_says_what_there_is(capsys):
    assert main(["play"]) == 2 and "tokenizer|pretrain|sft|ppo_single" in capsys.readouterr().err


def test_a_bad_word_is_bad_use(capsys):
    assert main(["sft", "--nothing"]) == 2
    assert capsys.readouterr().err.splitlines()[1] == "see kernel-assistant train sft --help"


def test_help_wins_over_a_plan(capsys):
    assert main(["sft", "--dry-run", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: kernel-assistant train sft")


def test_help_does_not_load_torch():
    code = (
        "import sys; from kernel_assistant_training.__main__ import main; code = main(['ppo_agent', '--help']);"
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "--iterations INTEGER" in done.stdout, done.stderr
