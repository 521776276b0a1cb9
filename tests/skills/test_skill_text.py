"""SKILL.md is correct: its candidates compile, and the headers and names that it mentions exist."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

import msgspec
import pytest
import torch

from kernel_assistant.agent.directives import candidate_from
from kernel_assistant.environment.builds.compile import Binary, Compiler
from kernel_assistant.environment.builds.headers import INCLUDE, shipped
from kernel_assistant.environment.screens.screen import screen
from kernel_assistant.records import OpGraph
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets import cpu
from kernel_assistant.targets.base import DeviceFacts
from tests.generator.harness import export

TEXT = (INCLUDE.parent / "SKILL.md").read_text(encoding="utf-8")
FENCES = re.findall(r"```(cuda|cpp)\n(.*?)```", TEXT, re.DOTALL)
H200 = DeviceFacts(target="cuda", name="H200", arch="sm_90", cores=132)


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    return export(torch.nn.LayerNorm(4096), torch.randn(8, 4096))


@pytest.mark.parametrize(("language", "source"), FENCES, ids=[language for language, _ in FENCES])
def test_its_candidates_build(language: str, source: str, graph: OpGraph, tmp_path: Path) -> None:
    if language == "cuda" and shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    target = {"cuda": "cuda", "cpp": "cpu"}[language]
    candidate = candidate_from({f"kernel.{'cu' if target == 'cuda' else 'cpp'}": source}, graph, target)
    assert screen(candidate, graph) == ()
    device = H200 if target == "cuda" else msgspec.structs.replace(cpu.facts(), name="test")
    built = Compiler(device, choose("auto"), tmp_path, threading.Event()).build(candidate)
    assert isinstance(built, Binary), built


def test_every_header_is_mentioned_and_every_name_exists() -> None:
    texts = {name.removeprefix("ka/"): text for name, text in shipped().items() if name.startswith("ka/")}
    assert [name for name in texts if name != "ptx.cuh" and f"`{name}`" not in TEXT] == []
    code = " ".join(shipped().values())
    names = set(re.findall(r"\bka::(\w+)", TEXT)) | set(re.findall(r"\b(ka_\w+)\b", TEXT))
    assert len(names) > 30
    made = {name for name in names if f"({name.removeprefix('ka_')}," in code}
    assert [name for name in names - made if not re.search(rf"\b{name}\b", code)] == []
