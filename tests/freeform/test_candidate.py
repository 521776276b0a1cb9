"""Tests the content of a path, the target that it needs, and a CUDA-Agent workdir as far as no GPU is needed."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.environment.builds.compile import CompileFailure
from kernel_assistant.environment.freeform import screen_candidate, target_of, task_of
from kernel_assistant.environment.freeform_build import architecture_number, compile_kernels
from kernel_assistant.environment.freeform_candidate import load_candidate
from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.session.prepare import prepare_check
from kernel_assistant.store import JobKind
from tests.worker.opened import module_text

SOLUTION = Path(__file__).with_name("solution.py")

KERNEL = """
#include <cuda_runtime.h>
__global__ void triple(const float* x, float* out, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = 3.0f * x[i];
}
extern "C" void triple_launcher(const float* x, float* out, long n, int config, cudaStream_t stream) {
  int block = config == 1 ? 512 : 256;
  triple<<<(n + block - 1) / block, block, 0, stream>>>(x, out, n);
}
"""
BINDING = """
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>
#include "../binding_registry.h"
extern "C" void triple_launcher(const float*, float*, long, int, cudaStream_t);
static torch::Tensor triple_forward(torch::Tensor x, int config) {
  auto out = torch::empty_like(x);
  triple_launcher(x.data_ptr<float>(), out.data_ptr<float>(), x.numel(), config, c10::cuda::getCurrentCUDAStream());
  return out;
}
static void register_triple(pybind11::module& m) { m.def("triple_forward", &triple_forward); }
REGISTER_BINDING(triple, register_triple)
"""
SOURCES = {
    "kernels/triple.cu": KERNEL,
    "kernels/triple_binding.cpp": BINDING,
    "binding.cpp": '#include "binding_registry.h"\nPYBIND11_MODULE(cuda_extension, m) {}\n',
    "binding_registry.h": "#pragma once\n#include <pybind11/pybind11.h>\n#define REGISTER_BINDING(name, call)\n",
}
MODEL = module_text("return 3.0 * x", "torch.randn(64, 128)")
MODEL_NEW = """
import torch
import torch.nn as nn
import cuda_extension

class ModelNew(nn.Module):
    def forward(self, x):
        return cuda_extension.triple_forward(x, 0)
"""


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A workdir in the layout of the public one, with our own files."""
    files = {**SOURCES, "model.py": MODEL, "model_new.py": MODEL_NEW, "SKILL.md": "how to work here"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_file_with_its_reference() -> None:
    candidate = load_candidate(SOLUTION)
    assert not candidate.is_workdir and not candidate.needs_gpu and not candidate.uses_triton
    assert target_of(candidate, "cpu") == "cpu"
    task = task_of(candidate, None, "cpu", "kernelbench")
    assert task.class_name == "Model" and task.search_path == () and "ModelNew" not in task.content


def test_named_reference_replaces_the_one_beside(workdir: Path) -> None:
    other = str(workdir / "model.py")
    task = task_of(load_candidate(SOLUTION, other), other, "cpu", "strict")
    assert task.path == other and task.numerics.value == "strict"


def test_reference_that_does_more_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "solution.py"
    path.write_text(SOLUTION.read_text().replace("        self.scale = scale\n", "        open('/tmp/x', 'w')\n", 1))
    with pytest.raises(UsageError, match="may not use open") as raised:
        task_of(load_candidate(path), None, "cpu", "kernelbench")
    assert "--reference" in raised.value.next_step


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("class Other: pass", "no class ModelNew"),
        ("class ModelNew(:", "solution.py:1"),
        ("import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x", "no reference"),
    ],
)
def test_bad_file_is_one_line(tmp_path: Path, text: str, cause: str) -> None:
    path = tmp_path / "solution.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=cause) as raised:
        load_candidate(path)
    assert raised.value.next_step


def test_what_is_neither(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"neither plan\.json nor model_new\.py"):
        load_candidate(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_candidate(tmp_path / "missing.py")


def test_workdir_is_read_and_screened(workdir: Path) -> None:
    candidate = load_candidate(workdir)
    assert candidate.is_workdir and target_of(candidate, "auto") == "cuda"
    assert set(candidate.sources) == {*SOURCES}
    assert screen_candidate(candidate) == ()
    assert task_of(candidate, None, "cuda", "paper").class_name == "Model"
    with pytest.raises(UsageError, match="is for cuda"):
        target_of(candidate, "cpu")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("model_new.py", MODEL_NEW.replace("x, 0)", "x, 0) * 1"), 8),
        ("kernels/triple_binding.cpp", BINDING.replace("torch::empty_like(x)", "torch::relu(x)"), 7),
        ("kernels/triple.cu", KERNEL + '\nvoid f() { system("ls"); }', 12),
    ],
)
def test_hostile_workdir_is_refused(workdir: Path, name: str, text: str, line: int) -> None:
    (workdir / name).write_text(text)
    problems = screen_candidate(load_candidate(workdir))
    assert [(problem.file, problem.line) for problem in problems] == [(name, line)]


@pytest.mark.parametrize("missing", ["binding.cpp", "kernels", "model.py"])
def test_incomplete_workdir_is_bad_input(workdir: Path, missing: str) -> None:
    path = workdir / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(UsageError):
        load_candidate(workdir)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_workdir_kernels_compile(workdir: Path) -> None:
    given = "sm_90", choose("auto"), threading.Event()
    assert compile_kernels(load_candidate(workdir), *given) is None
    (workdir / "kernels/triple.cu").write_text(KERNEL.replace("3.0f * x[i]", "3.0f * y[i]"))
    failed = compile_kernels(load_candidate(workdir), *given)
    assert isinstance(failed, CompileFailure)
    assert failed.diagnostics[0].line == 5 and '"y" is undefined' in failed.diagnostics[0].message


def test_workdir_without_a_gpu_says_so(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("kernel_assistant.targets.cuda.gpus", list)
    with pytest.raises(MissingError, match="no NVIDIA GPU"):
        prepare_check(workdir, None, resolve(workdir, {})[0], JobKind.verify)


def test_architecture_number() -> None:
    assert [architecture_number(arch) for arch in ("sm_86", "sm_90a", "sm_100")] == ["8.6", "9.0a", "10.0"]
