"""Tests PTX, SASS and assembly by the real compilers in the sandbox, with a disassembler if the machine has one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from kernel_assistant.environment.builds import assembly
from kernel_assistant.environment.builds.assembly import Assembler, disassembler
from kernel_assistant.environment.builds.compile import Binary, Compiler
from kernel_assistant.errors import MissingError
from kernel_assistant.records import Candidate
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets import cpu
from tests.environment.test_ship import H200, candidate, twice


def assembler(device, cache: Path) -> Assembler:
    return Assembler(device, choose("auto"), cache, sys.executable, threading.Event())


@pytest.fixture
def cubin(nvcc, tmp_path) -> bytes:
    built = Compiler(H200, choose("auto"), tmp_path, threading.Event()).build(candidate())
    assert isinstance(built, Binary)
    return built.content


def test_ptx_is_of_the_sources_with_the_headers_of_the_build(cubin, tmp_path, monkeypatch):
    monkeypatch.setattr(assembly, "disassembler", missing)
    made = assembler(H200, tmp_path).assembly(candidate(), cubin)
    assert ".target sm_90" in made.files["kernels.sm_90.ptx"] and ".entry twice" in made.files["kernels.sm_90.ptx"]
    assert made.missing == ("no kernels.sm_90.sass: none here",)
    kept = list((tmp_path / "builds").rglob("*.txt"))
    assert [path.read_text() for path in kept] == [made.files["kernels.sm_90.ptx"]]
    kept[0].write_text("from the cache")
    assert assembler(H200, tmp_path).assembly(candidate(), cubin).files == {"kernels.sm_90.ptx": "from the cache"}


def test_sass_is_of_the_cubin_that_was_measured(cubin, tmp_path):
    made = assembler(H200, tmp_path).assembly(candidate(), cubin)
    assert made.missing == () and "twice" in made.files["kernels.sm_90.sass"]
    assert "STG.E" in made.files["kernels.sm_90.sass"] and "EXIT" in made.files["kernels.sm_90.sass"]


def test_what_cannot_be_made_is_one_line_and_no_file(nvcc, tmp_path, monkeypatch):
    monkeypatch.setattr(assembly, "disassembler", lambda _: "/bin/false")
    broken = candidate().sources["twice.cu"].replace("int64_t i", "int64_t i j")
    made = assembler(H200, tmp_path).assembly(candidate(broken), b"not a cubin")
    assert made.files == {} and len(made.missing) == 2
    assert made.missing[0].startswith('no kernels.sm_90.ptx: nvcc: expected a ";"')
    assert made.missing[1].startswith("no kernels.sm_90.sass: false: ")
    assert assembler(H200, tmp_path).assembly(candidate(broken), None).missing[1].endswith("the job kept no cubin")
    assert list((tmp_path / "builds").rglob("*.txt")) == []


@pytest.mark.parametrize("package", ["triton/backends/nvidia/bin", "nvidia/cu13/bin"])
def test_a_disassembler_that_pip_installed_is_found(tmp_path, monkeypatch, package):
    monkeypatch.setattr(assembly, "toolkit_paths", lambda _: (str(tmp_path / "toolkit"),))
    monkeypatch.setenv("PATH", "")
    program = tmp_path / "venv/lib/python3.12/site-packages" / package / "nvdisasm"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert disassembler(str(tmp_path / "venv/bin/python")) == str(program)


def test_the_cpu_s_assembly_runs_as_its_compiler_wrote_it(tmp_path):
    source = (
        '#include "plan.h"\nextern "C" int twice(const twice_args* a) {\n'
        "  for (int64_t i = 0; i < a->n; ++i) a->y[i] = 2.0f * a->x[i];\n  return 0;\n}\n"
    )
    honest = Candidate(plan=twice("cpu"), sources={"twice.cpp": source})
    made = assembler(cpu.facts(), tmp_path).assembly(honest, None)
    (name,) = made.files
    assert name == f"kernels.{cpu.facts().arch}.s" and made.missing == ()
    other = msgspec.structs.replace(cpu.facts(), name="Another CPU")
    (why,) = assembler(other, tmp_path).assembly(honest, None).missing
    assert "built for Another CPU" in why
    (tmp_path / "twice.s").write_text(made.files[name])
    subprocess.run([cpu.compiler(), "-shared", "twice.s", "-o", "twice.so"], cwd=tmp_path, check=True)
    assert os.path.getsize(tmp_path / "twice.so") > 0


def missing(_: str) -> str:
    raise MissingError("none here", "")
