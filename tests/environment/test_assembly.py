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
from kernel_assistant.records import BufferSpec, Candidate, Launch, Plan
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets import cpu, cuda
from tests.environment.test_ship import H200, candidate


def assembler(device, cache: Path) -> Assembler:
    return Assembler(device, choose("auto"), cache, sys.executable, threading.Event())


@pytest.fixture
def nvcc():
    try:
        return cuda.compiler()
    except MissingError:
        pytest.skip("needs nvcc")


@pytest.fixture
def cubin(nvcc, tmp_path) -> bytes:
    built = Compiler(H200, choose("auto"), tmp_path, threading.Event()).build(candidate())
    assert isinstance(built, Binary)
    return built.content


def test_ptx_is_of_the_sources_with_the_headers_of_the_build(cubin, tmp_path, monkeypatch):
    monkeypatch.setattr(assembly, "disassembler", missing)
    found = assembler(H200, tmp_path).assembly(candidate(), cubin)
    assert ".target sm_90" in found.files["kernels.sm_90.ptx"] and ".entry twice" in found.files["kernels.sm_90.ptx"]
    assert found.missing == ("no kernels.sm_90.sass: none here",)
    kept = list((tmp_path / "builds").rglob("*.txt"))
    assert [path.read_text() for path in kept] == [found.files["kernels.sm_90.ptx"]]
    kept[0].write_text("from the cache")
    assert assembler(H200, tmp_path).assembly(candidate(), cubin).files == {"kernels.sm_90.ptx": "from the cache"}


def test_sass_is_of_the_cubin_that_was_measured(cubin, tmp_path):
    found = assembler(H200, tmp_path).assembly(candidate(), cubin)
    assert found.missing == () and "twice" in found.files["kernels.sm_90.sass"]
    assert "STG.E" in found.files["kernels.sm_90.sass"] and "EXIT" in found.files["kernels.sm_90.sass"]


def test_what_cannot_be_made_is_one_line_and_no_file(nvcc, tmp_path, monkeypatch):
    monkeypatch.setattr(assembly, "disassembler", lambda _: "/bin/false")
    broken = candidate().sources["twice.cu"].replace("int64_t i", "int64_t i j")
    found = assembler(H200, tmp_path).assembly(candidate(broken), b"not a cubin")
    assert found.files == {} and len(found.missing) == 2
    assert found.missing[0].startswith('no kernels.sm_90.ptx: nvcc: expected a ";"')
    assert found.missing[1].startswith("no kernels.sm_90.sass: false: ")
    assert assembler(H200, tmp_path).assembly(candidate(broken), None).missing[1].endswith("the job kept no cubin")
    assert list((tmp_path / "builds").rglob("*.txt")) == []


@pytest.mark.parametrize("package", ["triton/backends/nvidia/bin", "nvidia/cu13/bin"])
def test_a_disassembler_that_pip_installed_is_found(tmp_path, monkeypatch, package):
    monkeypatch.setattr(assembly, "toolkit_paths", lambda _: (str(tmp_path / "toolkit"),))
    monkeypatch.setenv("PATH", "")
    bin_folder = tmp_path / "venv/lib/python3.12/site-packages" / package
    bin_folder.mkdir(parents=True)
    (bin_folder / "nvdisasm").write_text("#!/bin/sh\n")
    (bin_folder / "nvdisasm").chmod(0o755)
    assert disassembler(str(tmp_path / "venv/bin/python")) == str(bin_folder / "nvdisasm")


def test_the_cpu_s_assembly_runs_as_its_compiler_wrote_it(tmp_path):
    row = BufferSpec(name="x", dtype="f32", shape=("N",))
    plan = Plan(
        target="cpu",
        dims=("N",),
        inputs=(row,),
        outputs=(BufferSpec(name="y", dtype="f32", shape=("N",)),),
        launches=(Launch(symbol="twice", args=(("x", "x"), ("y", "y"), ("n", "N"))),),
    )
    source = (
        '#include "plan.h"\nextern "C" int twice(const twice_args* a) {\n'
        "  for (int64_t i = 0; i < a->n; ++i) a->y[i] = 2.0f * a->x[i];\n  return 0;\n}\n"
    )
    found = assembler(cpu.facts(), tmp_path).assembly(Candidate(plan=plan, sources={"twice.cpp": source}), None)
    (name,) = found.files
    assert name == f"kernels.{cpu.facts().arch}.s" and found.missing == ()
    other = msgspec.structs.replace(cpu.facts(), name="Another CPU")
    (why,) = assembler(other, tmp_path).assembly(Candidate(plan=plan, sources={"twice.cpp": source}), None).missing
    assert "built for Another CPU" in why
    (tmp_path / "twice.s").write_text(found.files[name])
    subprocess.run([cpu.compiler(), "-shared", "twice.s", "-o", "twice.so"], cwd=tmp_path, check=True)
    assert os.path.getsize(tmp_path / "twice.so") > 0


def missing(_: str) -> str:
    raise MissingError("none here", "")
