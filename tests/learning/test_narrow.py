"""A narrow part of the synthesis, mistakes with given shares, and rows that are the same in each run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from functools import partial
from itertools import islice
from random import Random

import numpy as np
import pytest

from kernel_assistant.agent.directives import DirectiveError, candidate_from
from kernel_assistant.errors import UsageError
from kernel_assistant.records.canonical import canonical
from kernel_assistant_training.episodes.subject import subjects
from kernel_assistant_training.lessons.lesson import candidate_file
from kernel_assistant_training.ppo.sources import MixedSource, SourceOptions
from kernel_assistant_training.source import training_sources
from kernel_assistant_training.stream import Stream, StreamOptions
from kernel_assistant_training.synth import pairs, split
from kernel_assistant_training.synth.conversations import drawn
from kernel_assistant_training.synth.mistakes import FaultRates
from kernel_assistant_training.synth.narrow import Narrow

TWO = Narrow.of("log_sigmoid,mish", 1)


def test_tasks_have_the_named_steps_alone():
    found = [pair.steps for pair in islice(drawn(0, "cpu", Counter(), TWO), 60)]
    assert {step.name for steps in found for step in steps} == {"log_sigmoid", "mish"}
    assert {len(steps) for steps in found} == {1}
    family = Narrow.of("activation", 2)
    more = [family.sampled(Random(seed), 5)[1] for seed in range(40)]
    assert {step.family for steps in more for step in steps} == {"activation"} and {len(one) for one in more} == {2}


def test_a_narrow_stream_does_not_end_where_its_few_keys_were_seen_often():
    keys = Counter(pair.task.key() for pair in islice(drawn(0, "cpu", Counter(), TWO), 600))
    assert max(keys.values()) > 48


def test_episodes_and_rewarded_tasks_are_of_the_same_slice_and_keep_what_is_held_out():
    played = list(islice(subjects(0, "cpu", narrow=TWO), 8))
    sources = MixedSource("cpu", SourceOptions(narrow=TWO))
    prompts, held = sources.prompts(8, 3), sources.tasks(3, Random(0), wanted="held_out")
    for graph in [one.graph for one in (*played, *prompts, *held)]:
        assert {node.op for node in graph.nodes} <= {"log_sigmoid", "mish"}
    assert {split(canonical(one.graph)) for one in prompts} == {"train"} and {one.level for one in played} == {1}
    assert {split(canonical(one.graph)) for one in held} == {"held_out"}
    assert [one.key for one in sources.prompts(8, 3)] == [one.key for one in prompts]
    assert [one.key for one in sources.prompts(8, 4)] != [one.key for one in prompts]


@pytest.mark.parametrize(("names", "most"), [("silu,sillu", 1), ("silu", 6)])
def test_what_is_not_known_is_named(names, most):
    with pytest.raises(UsageError, match=r"sillu|no 6 steps"):
        Narrow.of(names, most)


def test_mistakes_come_as_often_as_asked_for_and_are_such():
    mistakes, random = FaultRates.of("unknown_size=0.3,lost_launch=0.2"), Random(1)
    seen = Counter[str]()
    for one in islice(drawn(0, "cpu", Counter(), TWO), 300):
        source = mistakes.put(one.source, random)
        kind = "as it was" if source == one.source else "launch" if "// launch:" not in source else "size"
        seen[kind] += 1
        files = {candidate_file("cpu"): source}
        if kind == "as it was":
            candidate_from(files, one.graph, "cpu", one.task)
        else:
            with pytest.raises(DirectiveError):
                candidate_from(files, one.graph, "cpu", one.task)
    assert 60 <= seen["size"] <= 120 and 35 <= seen["launch"] <= 85 and seen["as it was"] >= 110


@pytest.mark.parametrize("text", ["typo=0.1", "lost_launch=much", "lost_launch=0.6,unknown_size=0.6"])
def test_shares_that_are_none_are_named(text):
    with pytest.raises(UsageError):
        FaultRates.of(text)


@pytest.mark.learns
def test_a_steady_stream_has_the_same_rows_again_however_fast_it_is_read():
    source = partial(pairs, target="cpu", narrow=TWO, mistakes=FaultRates.of("lost_launch=0.5"))
    asked = StreamOptions((source,), processes=2, length=512, keep=32, steady=True)
    runs = []
    for waits in (0, 12):
        with Stream(asked) as stream:
            while stream.waiting < waits:
                time.sleep(0.01)
            runs.append([stream.take(4) for _ in range(4)])
            assert stream.counts.repeated_rows == 0
    for first, second in zip(*runs, strict=True):
        assert np.array_equal(first.ids, second.ids) and np.array_equal(first.flags, second.flags)
    with Stream(asked) as stream, pytest.raises(ValueError, match="evenly by 2"):
        stream.take(3)


def test_a_process_of_the_stream_does_not_depend_on_the_order_of_sets():
    """The processes differ in the seed of Python's hashes."""
    program = (
        "from itertools import islice; from kernel_assistant_training.source import training_sources\n"
        "from kernel_assistant_training.synth.narrow import Narrow\n"
        "(source,) = training_sources(0.0, ('cpu',), Narrow.of('activation,function', 2))\n"
        "print([one[-1].content for one in islice(source(7), 40)])\n"
    )
    said = set()
    for seed in ("1", "2"):
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        said.add(done.stdout)
    assert len(said) == 1 and training_sources(0.0, ("cpu",))
