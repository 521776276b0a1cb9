"""Tests that NVRTC builds the same as nvcc, and that nvcc builds the sources that NVRTC refuses."""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import pytest

from kernel_assistant.environment.builds.compile import Binary, CompileFailure, Compiler, compiler_version
from kernel_assistant.environment.nvrtc import find_nvrtc
from kernel_assistant.errors import MissingError
from kernel_assistant.records import Candidate
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.episodes.subject import LessonTask, subjects
from kernel_assistant_training.lessons.lesson import Lesson, PlannedReply, ReplyKind

H200 = DeviceFacts(target="cuda", name="NVIDIA H200", arch="sm_90", shared_bytes_per_block=227 << 10)


def _found() -> bool:
    try:
        return find_nvrtc(cuda.compiler(), compiler_version(cuda.compiler())) is not None
    except MissingError:
        return False


pytestmark = [pytest.mark.builds, pytest.mark.skipif(not _found(), reason="no nvcc with an NVRTC of its release")]


@pytest.fixture(scope="module")
def some() -> list[LessonTask]:
    """Tasks of different families."""
    found: dict[tuple[str, ...], LessonTask] = {}
    for subject in subjects(3, "cuda"):
        found.setdefault(subject.answers[0].schedule.forms(), subject)
        if len(found) == 6:
            return list(found.values())
    raise AssertionError


def _candidate(subject: LessonTask, source: str) -> Candidate:
    return subject.candidates(Lesson((PlannedReply(ReplyKind.answer, "", source),)), "cuda")[0]


def _by_nvcc(folder: Path) -> Compiler:
    compiler = Compiler(H200, choose("auto"), folder, threading.Event())
    compiler._nvrtc = None
    return compiler


def _kernels(cubin: bytes) -> dict[str, bytes]:
    """Machine code by section of an ELF file."""
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + index * size) for index in range(count)]
    base = sections[names][4]
    found = {}
    for name, _, _, _, offset, length in sections:
        text = cubin[base + name : cubin.index(b"\0", base + name)].decode()
        if text.startswith(".text"):
            found[text] = cubin[offset : offset + length]
    return found


def test_machine_code_is_as_long_and_resources_are_those_of_nvcc(some: list[LessonTask], tmp_path: Path) -> None:
    fast, slow = Compiler(H200, choose("auto"), tmp_path / "fast", threading.Event()), _by_nvcc(tmp_path / "slow")
    same = 0
    for subject in some:
        candidate = _candidate(subject, subject.answers[0].source)
        one, other = fast.build(candidate), slow.build(candidate)
        assert isinstance(one, Binary) and isinstance(other, Binary)
        assert one.resources == other.resources != ()
        kernels, expected = _kernels(one.content), _kernels(other.content)
        lengths, due = ({name: len(code) for name, code in each.items()} for each in (kernels, expected))
        assert lengths == due
        same += kernels == expected
    # In some kernels instructions stand in another order.
    assert same > 0


def test_what_nvrtc_refuses_is_told_in_the_words_of_nvcc(some: list[LessonTask], tmp_path: Path) -> None:
    fast, slow = Compiler(H200, choose("auto"), tmp_path / "fast", threading.Event()), _by_nvcc(tmp_path / "slow")
    source = some[0].answers[0].source
    for wrong in (source.replace("ka_cuda.cuh", "ka/no.cuh", 1), source.replace(";", " nothing;", 1)):
        failed, expected = fast.build(_candidate(some[0], wrong)), slow.build(_candidate(some[0], wrong))
        assert isinstance(failed, CompileFailure) and failed == expected


def test_headers_that_nvrtc_lacks_are_no_error(some: list[LessonTask], tmp_path: Path) -> None:
    candidate = _candidate(some[0], some[0].answers[0].source.replace("#include", "#include <limits>\n#include", 1))
    assert isinstance(Compiler(H200, choose("auto"), tmp_path, threading.Event()).build(candidate), Binary)
