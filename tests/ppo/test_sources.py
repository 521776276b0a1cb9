"""Tasks from the synthesis and from shards, and the curriculum from one operator to five."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from kernel_assistant.errors import UsageError
from kernel_assistant.records.canonical import canonical
from kernel_assistant_training.options.command_line import parse
from kernel_assistant_training.options.stages import PpoSingleArguments
from kernel_assistant_training.ppo.arguments import options_of
from kernel_assistant_training.ppo.curriculum import EPISODES, CurriculumProgress
from kernel_assistant_training.ppo.run_folder import PpoRunFolder
from kernel_assistant_training.ppo.sources import MixedSource, SourceOptions
from kernel_assistant_training.ppo.stage import run
from kernel_assistant_training.ppo.store import TrajectoryStore
from kernel_assistant_training.synth import fitted, module_text, sample, split
from kernel_assistant_training.synth.digest_kernelbench import trace_source
from kernel_assistant_training.synth.narrow import Narrow
from kernel_assistant_training.tasks.records import FilterResult, Reason
from kernel_assistant_training.tasks.shards import write_tasks
from tests.ppo.test_stage import lines

ALONE = {"synthesis": 0.0}


def graphs(count, wanted="train", first=0):
    random, found = Random(f"shards {first}"), {}
    while len(found) < count:
        graph = fitted(sample(random, 1 + len(found) % 3), "cpu", random)
        if graph is not None and split(canonical(graph)) == wanted:
            found.setdefault(canonical(graph).key(), graph)
    return list(found.values())


def verdict(number, graph, **other):
    task = canonical(graph)
    fields = {"source": "composed", "operators": tuple("abc"[: 1 + number % 3]), "attribution": (), "graph": graph}
    fields |= {"text": module_text(graph), "reason": Reason.passed, "key": task.key(), "split": split(task)}
    return FilterResult(number=number, **(fields | other))


def shards(folder, verdicts, target="cpu"):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'kernel-assistant[train]'")
    folder.mkdir(parents=True, exist_ok=True)
    write_tasks(folder, verdicts, target, 0)
    return folder


def test_tasks_of_the_synthesis_are_of_their_split_different_and_the_same_again():
    sources = MixedSource("cpu", SourceOptions())
    up_to_two = CurriculumProgress(operators=2).weights
    drawn = [sources.tasks(6, Random(3), weights=up_to_two) for _ in range(2)]
    assert [one.key for one in drawn[0]] == [one.key for one in drawn[1]]
    assert len({one.key for one in drawn[0]}) == 6 and all(one.level <= 2 for one in drawn[0])
    withheld = sources.tasks(3, Random(3), wanted="held_out")
    assert {split(one.canonical) for one in withheld} == {"held_out"}
    assert not {one.key for one in withheld} & {one.key for one in sources.tasks(40, Random(3))}


def test_a_narrow_slice_ends_where_it_has_no_more():
    sources = MixedSource("cpu", SourceOptions(narrow=Narrow.of("relu", 1)))
    found = sources.tasks(500, Random(0))
    assert 1 <= len(found) < 500 and {one.level for one in found} == {1}
    assert all("relu" in one.canonical.text() for one in found)


def test_traced_graphs_are_tasks_of_their_split_different_and_the_same_again():
    sources = MixedSource("cpu", SourceOptions(**ALONE, traced=1.0))
    drawn = [sources.tasks(30, Random(3)) for _ in range(2)]
    assert [one.key for one in drawn[0]] == [one.key for one in drawn[1]]
    assert len({one.key for one in drawn[0]}) == 30
    assert {one.level for one in drawn[0]} == set(sources.levels()) == {1, 2, 3, 4, 5}
    withheld = sources.tasks(30, Random(3), wanted="held_out")
    for wanted, tasks in (("train", drawn[0]), ("held_out", withheld)):
        assert {split(one.canonical) for one in tasks} == {wanted}
    two = sources.tasks(9, Random(4), weights=lambda levels: {2: 1.0})
    assert {one.level for one in two} == {2}
    assert MixedSource("cpu", SourceOptions(**ALONE, traced=1.0, narrow=Narrow.of("", 3))).levels() == [1, 2, 3]
    with pytest.raises(UsageError, match="not restricted"):
        MixedSource("cpu", SourceOptions(**ALONE, traced=1.0, narrow=Narrow.of("relu", 3)))
    # The judge opens a task only if its module is traced to the same graph.
    graph, _ = trace_source(two[0].kernel_task.content, "task", training=False)
    assert canonical(graph).text() == two[0].canonical.text()


def test_sources_are_mixed_by_weight_and_only_training_is_trained_on(tmp_path):
    train, aside = graphs(30), graphs(2, "held_out", first=1)
    folder = shards(tmp_path, [verdict(number, one) for number, one in enumerate([*train, *aside])])
    keys = {canonical(one).key() for one in train}
    sources = MixedSource("cpu", SourceOptions(synthesis=1.0, shards=((folder, 3.0),)))
    found = [one for seed in range(10) for one in sources.tasks(16, Random(seed))]
    share = sum(one.key in keys for one in found) / len(found)
    assert 0.62 < share < 0.85 and {split(one.canonical) for one in found} == {"train"}
    alone = MixedSource("cpu", SourceOptions(**ALONE, shards=((folder, 1.0),)))
    assert (alone.levels(), alone.levels("held_out"), alone.levels("excluded")) == ([1, 2, 3], [1, 2], [])
    everything = alone.tasks(1000, Random(1))
    assert {one.key for one in everything} == keys and alone.refused == 0
    assert Counter(one.level for one in everything) == {1: 10, 2: 10, 3: 10}
    assert {one.key for one in alone.tasks(9, Random(1), wanted="held_out")} == {canonical(one).key() for one in aside}
    up_to_two = alone.tasks(1000, Random(1), weights=CurriculumProgress(operators=2).weights)
    assert {one.level for one in up_to_two} == {1, 2}


def test_rows_that_are_not_what_they_say_are_counted(tmp_path):
    (kept, renamed, hidden), (aside,) = graphs(3), graphs(1, "held_out", first=1)
    rows = [verdict(0, kept), verdict(1, renamed, key="0" * 16), verdict(2, hidden, text="import torch\n")]
    # The last is somebody's way to train on what is held out.
    folder = shards(tmp_path, [*rows, verdict(3, aside, split="train")])
    sources = MixedSource("cpu", SourceOptions(**ALONE, shards=((folder, 1.0),)))
    assert [one.key for one in sources.tasks(9, Random(0))] == [canonical(kept).key()]
    assert sources.refused == 3
    with pytest.raises(UsageError, match="has tasks for cpu, not for cuda"):
        MixedSource("cuda", SourceOptions(shards=((folder, 1.0),)))
    with pytest.raises(UsageError, match="no shards"):
        MixedSource("cpu", SourceOptions(shards=((tmp_path / "other", 1.0),)))
    with pytest.raises(UsageError, match="no tasks are asked for"):
        MixedSource("cpu", SourceOptions(**ALONE))


def test_the_next_number_of_operators_opens_by_the_pass_rate_of_the_newest():
    at = CurriculumProgress(operators=1)
    assert at.weights(range(1, 6)) == {1: 2.0}
    # Easier tasks, and too few episodes, open nothing.
    at = at.after([(1, True)] * (EPISODES - 1)).looked_at(0.5, range(1, 6))
    assert (at.operators, at.episodes, at.pass_rate) == (1, EPISODES - 1, 1.0)
    at = at.after([(1, False)]).looked_at(0.5, range(1, 6))
    assert at == CurriculumProgress(operators=2) and at.pass_rate is None
    assert at.weights(range(1, 6)) == {1: 1.0, 2: 2.0}
    missed = at.after([(2, number < 15) for number in range(EPISODES)] + [(1, True)] * 50)
    assert missed.pass_rate == 15 / EPISODES
    # The rate is that of the newest episodes: what was missed before does not count for ever.
    assert missed.looked_at(0.5, range(1, 6)) == CurriculumProgress(operators=2)
    passed = at.after([(2, True)] * EPISODES)
    assert passed.looked_at(0.5, [1, 2, 4]).operators == 4, "there are no tasks of three"
    assert CurriculumProgress(operators=5).after([(5, True)] * EPISODES).looked_at(0.5, range(1, 6)).operators == 5
    assert CurriculumProgress().weights([1, 2]) == {1: 1.0, 2: 1.0}


def test_words_of_the_command_line_are_sources(tmp_path):
    (tmp_path / "a=b").mkdir()
    words = ["--base", "x", "--out", "y", "--shards", str(tmp_path / "a=b"), "--shards", "there=2.5"]
    words += ["--synthesis", "0.5", "--traced", "0.25", "--curriculum", "0.6", "--only", "relu", "--level", "2"]
    options = options_of("ppo_single", parse(PpoSingleArguments, "ppo-single", words))
    assert options.sources.shards == ((tmp_path / "a=b", 1.0), (Path("there"), 2.5))
    assert (options.sources.synthesis, options.sources.traced, options.curriculum) == (0.5, 0.25, 0.6)
    # Where the shards lie may change between two starts, how much of them is played may not.
    told = {"synthesis": 0.5, "traced": 0.25, "shards": [1.0, 2.5], "only": ["relu"], "level": 2}
    assert options.asked()["sources"] == told
    found = parse(PpoSingleArguments, "ppo-single", [*words, "--shards", "there=much"])
    with pytest.raises(UsageError, match="'much' is no weight"):
        options_of("ppo_single", found)


@pytest.mark.programs
@pytest.mark.slow
def test_a_stage_plays_shards_counts_what_the_worker_refuses_and_opens_operators(options, coin, tmp_path, capsys):
    other, aside = graphs(1)[0], graphs(1, "held_out", first=1)[0]
    rows = [verdict(0, coin.task.graph), verdict(3, other, text=module_text(graphs(2, first=7)[1]))]
    rows += [verdict(4, graphs(1, first=9)[0]), verdict(6, aside)]
    sources = SourceOptions(**ALONE, shards=((shards(tmp_path / "shards", rows), 1.0),))
    played = {"tasks": 2, "episodes": EPISODES, "rows": EPISODES, "curriculum": 0.05, "held_out": 1}
    options = replace(options, sources=sources, **played)
    run(options, device=torch.device("cpu"))
    start, line = lines(options.out)
    assert start["held_out_reward"] in (-1, 1) and "held_out_seconds" in start
    assert {one.key for one in TrajectoryStore(options.out).read(1)} == {coin.task.key}
    assert (line["tasks_not_opened"], line["tasks_refused"]) == (1, 0)
    assert "cannot be judged: another graph was traced" in capsys.readouterr().err
    assert line["curriculum_operators"] == 1 and 0.05 < line["curriculum_pass_rate"] == line["pass_rate"]
    # Tasks of one operator were solved often enough, and the shards have one of two: what goes on begins with those.
    _, state = PpoRunFolder(options.out, options.asked()).latest()
    assert state.curriculum == CurriculumProgress(operators=2)
