"""Which calls count: those of the loop after its first round, or all where there is no loop."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from kernel_assistant.records import decode
from kernel_assistant.records.scan import Recording
from kernel_assistant.session.scanning.ranking import RooflineBandwidth, amdahl, rank
from kernel_assistant.worker.recording.recorder import Recorder
from kernel_assistant.worker.recording.rounds import LOOP, MOST


class Watched(nn.Module):
    """Calls go through the recorder, as those of a scanned program do."""

    recorder: Recorder

    def __call__(self, *args):
        frame = self.recorder.enter(self, args, {})
        result = super().__call__(*args)
        if frame is not None:
            self.recorder.leave(frame, result)
        return result


class Inner(Watched):
    def forward(self, x):
        return x * 2


class Encoder(Watched):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(self.inner(x)) + 1


class Decoder(Watched):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x) - 1


OUTERMOST = {"Encoder": 2, "Decoder": 1, "Inner": 0}
_folders = count()


def recording_of(folder: Path, program: Callable[[], object], *, outermost: bool = False) -> Recording:
    own = folder / str(next(_folders))
    own.mkdir()
    Watched.recorder = Recorder(str(own), 0.0, outermost=outermost)
    program()
    Watched.recorder.end("exit")
    assert not Watched.recorder.failure
    return decode((own / "recording.json").read_bytes(), Recording)


def recorded(folder: Path, calls: list[tuple[str, int]], *, outermost: bool = False) -> Recording:
    """The recording of a program that calls modules of these classes with so many rows."""
    modules = {"Encoder": Encoder(), "Decoder": Decoder(), "Inner": Inner()}

    @torch.no_grad()
    def program() -> None:
        for name, rows in calls:
            modules[name](torch.ones(rows, 4))

    return recording_of(folder, program, outermost=outermost)


def calls_of(recording: Recording, name: str) -> tuple[int, int]:
    """All calls of a class, and those that count."""
    found = [cls for cls in recording.classes if cls.name == name]
    signatures = [one for cls in found for each in cls.configurations for one in each.signatures]
    return sum(cls.calls for cls in found), sum(one.counted_calls for one in signatures)


program = st.lists(st.tuples(st.sampled_from(sorted(OUTERMOST)), st.sampled_from((2, 3, 8))), min_size=1, max_size=14)


def _follows(names: list[str], name: str) -> bool:
    """Whether the loop of another class was over before the second call of this one."""
    before = names[: [position for position, one in enumerate(names) if one == name][1]]
    return any(before.count(other) == names.count(other) >= LOOP for other in {*names} - {name})


@given(calls=program)
def test_the_first_round_of_the_loop_does_not_count(calls, tmp_path_factory):
    recording = recorded(tmp_path_factory.getbasetemp(), calls)
    names = [name for name, _ in calls]
    if recording.loop:
        assert names.count(recording.loop) >= LOOP
        second = [position for position, name in enumerate(names) if name == recording.loop][1]
        counted = names[second:]
        assert recording.rounds == counted.count(recording.loop)
        assert 0 < recording.loop_seconds <= recording.calls_seconds
    else:
        # The class that took most time was called too rarely, or another's loop was over before; which class that is
        # depends on the clock.
        assert recording.rounds == 0 and any(names.count(name) < LOOP or _follows(names, name) for name in set(names))
        counted = names
    for name in ("Encoder", "Decoder"):
        assert calls_of(recording, name) == (names.count(name), counted.count(name))
    inner = [sum(OUTERMOST[name] or 1 for name in part) for part in (names, counted)]
    assert calls_of(recording, "Inner") == tuple(inner)
    assert sum(cls.share_seconds for cls in recording.classes) <= recording.counted_seconds * (1 + 1e-9)


@given(calls=program)
@settings(max_examples=25)
def test_shares_are_of_what_counts_and_not_of_the_start(calls, tmp_path_factory):
    recording = recorded(tmp_path_factory.getbasetemp(), calls)
    assert recording.startup_seconds + recording.calls_seconds <= recording.wall_seconds
    for row in rank(recording, RooflineBandwidth()):
        assert row.saved_seconds <= recording.counted_seconds * (1 + 1e-9)
        assert row.speedup_at_floor == amdahl(recording.counted_seconds, row.saved_seconds)


@given(calls=program)
@settings(max_examples=25)
def test_outermost_calls_alone_are_timed_for_a_comparison(calls, tmp_path_factory):
    recording = recorded(tmp_path_factory.getbasetemp(), calls, outermost=True)
    names = [name for name, _ in calls]
    assert {cls.name: cls.calls for cls in recording.classes} == {name: names.count(name) for name in set(names)}
    assert recording.calls == len(calls)
    assert not any(cls.configurations for cls in recording.classes)


def test_the_first_step_of_training_does_not_count(tmp_path):
    """Both outermost classes, the model and its loss, are first called in the first step."""
    model, loss, x = Encoder(), Decoder(), torch.ones(8, 4, requires_grad=True)
    recording = recording_of(tmp_path, lambda: [loss(model(x)).sum().backward() for _ in range(5)])
    assert recording.rounds == 4 and calls_of(recording, recording.loop) == (5, 4)
    rows = rank(recording, RooflineBandwidth())
    assert rows and all(list(row.unserved_seconds) == ["gradient"] and row.saved_seconds < 1e-9 for row in rows)


def test_layers_that_a_program_calls_itself_make_rounds_of_all_of_them(tmp_path):
    """No call of the first round counts, though the class is called again and again in it."""
    layers, x = [Decoder() for _ in range(3 * MOST // 2)], torch.ones(8, 4)
    recording = recording_of(tmp_path, torch.no_grad()(lambda: [layer(x) for _ in range(4) for layer in layers]))
    total, counted = calls_of(recording, "Decoder")
    assert (recording.loop, recording.rounds, total) == ("Decoder", 3, 4 * len(layers))
    assert 2 * len(layers) < counted <= 3 * len(layers)


def test_of_models_that_run_one_behind_the_other_all_count(tmp_path):
    """The loop that takes longest would make a warm-up of the others."""
    recording = recorded(tmp_path, [("Decoder", 2)] * 4 + [("Encoder", 1 << 18)] * 60 + [("Inner", 2)] * 3)
    assert (recording.loop, recording.rounds) == ("", 0)
    assert calls_of(recording, "Decoder") == (4, 4) and calls_of(recording, "Encoder") == (60, 60)


def test_a_program_without_a_loop_counts_as_a_whole(tmp_path):
    recording = recorded(tmp_path, [("Encoder", 8), ("Encoder", 8)])
    assert (recording.loop, recording.rounds, recording.loop_seconds) == ("", 0, 0.0)
    assert recording.counted_seconds == recording.calls_seconds > 0
    assert recording.calls == 6
