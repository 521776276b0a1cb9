"""Shared memory: the runner sees the judge's values, and nothing beyond its permissions."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, closing
from itertools import pairwise

import pytest
import torch

from kernel_assistant.worker.running.arena import Arena, padded, span_bytes
from kernel_assistant.worker.running.buffer_sets import BufferSets

CPU = torch.device("cpu")


@pytest.fixture
def arena():
    """A function: size, whether it may be written → an arena that ends with the test."""
    with ExitStack() as made:
        yield lambda size, writable: made.enter_context(closing(Arena("inputs", size, CPU, writable)))


def test_writes_arrive_through_the_descriptor(arena):
    ours = arena(10_000, writable=True)
    ours.view(512, torch.empty(3, 4)).copy_(torch.arange(12.0).reshape(3, 4))
    with mmap.mmap(ours.descriptor, ours.size) as theirs:
        assert torch.frombuffer(bytearray(theirs[512:560]), dtype=torch.float32).tolist() == list(range(12))
        theirs[512:516] = b"\0\0\x80?"
    assert ours.view(512, torch.empty(1)).item() == 1.0


def test_views_keep_strides_and_dtype(arena):
    ours = arena(1 << 16, writable=True)
    like = torch.empty(8, 6, dtype=torch.bfloat16).t()
    view = ours.view(256, like)
    assert (view.dtype, view.shape, view.stride()) == (like.dtype, like.shape, like.stride())
    assert view.storage_offset() * 2 == 256


def test_a_read_only_arena_cannot_be_mapped_for_writing(arena):
    ours = arena(4096, writable=False)
    with pytest.raises(PermissionError):
        mmap.mmap(ours.descriptor, ours.size)
    with pytest.raises(PermissionError):
        os.pwrite(ours.descriptor, b"x", 0)
    ours.bytes[0] = 7
    with mmap.mmap(ours.descriptor, ours.size, prot=mmap.PROT_READ) as theirs:
        assert theirs[0] == 7


def test_an_arena_cannot_be_cut_or_grown(arena):
    ours = arena(8192, writable=True)
    for size in (4096, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(ours.descriptor, size)


@pytest.mark.parametrize(("writable", "status"), [(True, 0), (False, -signal.SIGSEGV)])
def test_writing_through_a_read_only_mapping_is_a_segmentation_fault(arena, root, writable, status):
    ours = arena(4096, writable=writable)
    program = (
        "import ctypes, sys\n"
        "from kernel_assistant.worker.runner.memory import MappedMemory\n"
        f"place = MappedMemory({ours.descriptor}, 4096, {writable})\n"
        "ctypes.memset(place.address, 1, 16)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=root, pass_fds=(ours.descriptor,), check=False)
    assert done.returncode == status
    assert bool(ours.bytes[:16].all()) is writable


def test_spans_and_padding():
    for shape in ((), (1,), (5, 7), (0, 3), (2, 3, 4)):
        tensor = torch.empty(shape)
        assert (span := span_bytes(tensor)) == 4 * tensor.numel()
        assert padded(span) % 256 == 0 and padded(span) - span >= 256
    assert span_bytes(torch.empty(4, 6)[:, :2]) == 4 * (3 * 6 + 1 + 1)
    assert span_bytes(torch.empty(4, 1).expand(4, 9)) == 16


def sets_of(
    first: list[torch.Tensor], outputs: list[torch.Tensor], constants: dict[str, torch.Tensor], count: int = 1
) -> BufferSets:
    """The judge's memory for `count` sets of these tensors."""
    names, output_names = ([f"{kind}{n}" for n in range(len(some))] for kind, some in (("x", first), ("out", outputs)))
    return BufferSets(names, output_names, constants, first, outputs, dims={}, count=count, device=CPU)


@pytest.fixture
def sets():
    first = [torch.zeros(5, 7), torch.zeros(5, 2, dtype=torch.int64)]
    outputs = [torch.zeros(5, 7), torch.zeros(9, dtype=torch.int64)]
    with closing(sets_of(first, outputs, {"p0": torch.ones(3)}, count=3)) as made:
        yield made


@pytest.mark.parametrize("poison", [0xFF, 0x7B])
def test_red_zones_see_every_stray_byte(sets, poison):
    inside = set()
    for row in sets.outputs:
        for view in row:
            at = view.storage_offset() * view.element_size()
            inside |= set(range(at, at + span_bytes(view)))
    sets.poison(poison)
    assert not sets.stray_write(poison)
    for position in range(0, sets.writable.size, 61):
        sets.poison(poison)
        sets.writable.bytes[position] = 1
        assert sets.stray_write(poison) is (position not in inside)


def test_poison_is_seen_as_unwritten_by_floats_and_integers(sets):
    sets.poison(0xFF)
    assert bool(sets.outputs[1][0].isnan().all())
    assert sets.outputs[1][1].tolist() == [-1] * 9
    sets.poison(0x7B)
    assert bool((sets.outputs[1][0] > 1e35).all())


def test_new_values_move_and_stay_whole(sets):
    sets.write_all([torch.arange(35.0).reshape(5, 7) + 100, torch.arange(10).reshape(5, 2)])
    before = [[tensor.clone() for tensor in row] for row in sets.inputs]
    sets.refresh(torch.Generator().manual_seed(1), [True, True], 0)
    for old, new in zip(before, sets.inputs, strict=True):
        assert not any(map(torch.equal, old, new))
    # Integers may be indices: their values stay, row by row.
    rows = {tuple(line.tolist()) for _, labels in before for line in labels}
    assert {tuple(line.tolist()) for row in sets.inputs for line in row[1]} == rows


def test_new_values_are_no_multiple_of_those_before(sets):
    """What is known of a linear function of one row says nothing about another row."""
    sets.write_all([torch.arange(1.0, 36.0).reshape(5, 7), torch.zeros(5, 2, dtype=torch.int64)])
    generator, ratios = torch.Generator().manual_seed(1), list[float]()
    sets.refresh(generator, [True, True], 1)
    seen = [row[0].clone() for row in sets.inputs]
    sets.change([2, 0], generator, [True, True])
    seen += [sets.inputs[2][0].clone(), sets.inputs[0][0].clone()]
    for values in seen:
        assert bool((values >= 0.75).all()) and bool((values <= 35).all())
        ratios += [float(line[1] / line[0] * line[3] / line[2]) for line in values.double()]
    # Those of multiples differ by rounding alone, below 3e-7; two of 25 others are that near once in some 3,000 runs.
    assert len(ratios) == 25 and all(above / below > 1 + 1e-6 for below, above in pairwise(sorted(ratios)))
    sets.by_element = False
    sets.refresh(generator, [False, False], 0)
    rows = torch.stack([row[0].flatten().sort().values for row in sets.inputs])
    assert torch.allclose(rows / rows[:, :1], torch.arange(1.0, 36.0).expand(3, -1))


def test_other_integers_come_from_samples(sets):
    sets.write_all([torch.ones(5, 7), torch.zeros(5, 2, dtype=torch.int64)])
    samples = [[torch.ones(5, 7), torch.full((5, 2), number)] for number in (3, 4)]
    sets.change([0, 2], torch.Generator().manual_seed(1), [True, True], samples)
    assert [int(row[1].max()) for row in sets.inputs] == [3, 0, 4]


def test_sets_without_room_give_back_what_they_had():
    """Outputs of 2 PiB are refused after the inputs were allocated; the next task has the room of these inputs."""
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match=r"large|memory|Invalid"):
            sets_of([torch.zeros(5)], [torch.empty(1 << 49, device="meta")], {})
    assert sorted(os.listdir("/proc/self/fd")) == before
