"""Exports in processes and compilers of their own: a KernelBench file, a CUDA-Agent workdir, a package."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from kernel_assistant.apply import export
from kernel_assistant.apply.exporting.model_new import _renamed
from kernel_assistant.apply.exporting.native import kernel_text, launcher_text, to_cpp
from kernel_assistant.environment.freeform import screen_candidate
from kernel_assistant.environment.freeform_build import compile_kernels
from kernel_assistant.environment.freeform_candidate import ModelCandidate, load_candidate
from kernel_assistant.environment.screens.screen_python import screen_python
from kernel_assistant.errors import UsageError
from kernel_assistant.records import BufferSpec, Candidate, KernelTask, Launch, Outcome, Plan, decode, to_builtins
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.worker.runner.plan import evaluate
from tests.apply.conftest import MakeResult, Python, change
from tests.common.caches import new_cache
from tests.common.kernelbench import AS_KERNELBENCH_DOES
from tests.freeform.judged import verify_path

INPUTS = "\n\ndef get_inputs():\n    return [torch.randn(8, 64)]\n"

CUDA_SOURCE = """#include "plan.h"
#include "helpers.cuh"

extern "C" __global__ void gate(const __grid_constant__ gate_args a) {
    extern __shared__ float row[];
    for (int64_t i = threadIdx.x; i < a.width; i += blockDim.x) row[i] = a.x[blockIdx.x * a.width + i];
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.width; i += blockDim.x)
        a.out[blockIdx.x * a.width + i] = row[i] * sigmoid(row[i]) * a.w[i] * 1.5f;
}
"""
HELPERS = "#pragma once\n__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }\n"


@pytest.fixture
def result(make_result: MakeResult, user_file: str) -> Path:
    return make_result(user_file.replace("\n\nif __name__", f"{INPUTS}\n\nif __name__"))


@pytest.fixture
def cuda_result(result: Path) -> Path:
    """The same class with kernels for a GPU."""
    plan = decode((result / "plan.json").read_bytes(), Plan)
    geometry = {"grid": ("B", "1", "1"), "block": ("min(64, 128)", "1", "1"), "shared": "64*4"}
    launch = msgspec.structs.replace(plan.launches[0], **geometry)
    change(result / "plan.json", target="cuda", launches=[to_builtins(launch)])
    change(result / "task.json", target="cuda")
    shutil.rmtree(result / "sources")
    (result / "sources").mkdir()
    (result / "sources" / "gate.cu").write_text(CUDA_SOURCE)
    (result / "sources" / "helpers.cuh").write_text(HELPERS)
    (next((result / "binaries").iterdir())).rename(result / "binaries" / "kernels.sm_90.cubin")
    return result


def test_a_class_indented_with_tabs_is_exported(make_result: MakeResult, user_file: str, tmp_path: Path) -> None:
    text = user_file.replace("\n\nif __name__", f"{INPUTS}\n\nif __name__").replace("    ", "\t")
    exported = export(make_result(text), "kernelbench", tmp_path / "out")
    (made,) = [node for node in ast.parse(exported.files[0].read_text()).body if isinstance(node, ast.ClassDef)]
    assert made.name == "ModelNew" and "\n\tdef forward(" in exported.files[0].read_text()


@pytest.mark.builds
@pytest.mark.slow
def test_a_kernelbench_file_is_verified_by_the_free_form_path(
    result: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    exported = export(result, "kernelbench", tmp_path / "out")
    assert exported.warnings == () and [path.name for path in exported.files] == ["model_new.py", "model.py"]
    text = exported.files[0].read_text()
    assert "class ModelNew(nn.Module):" in text and "Gate" not in text.replace("for Gate;", "") and "gate_args" in text
    cache = new_cache(tmp_path_factory.mktemp("cache"))
    evaluation = verify_path(exported.files[0], str(exported.files[1]), cache_dir=cache, profile=False)
    assert evaluation.outcome is Outcome.correct, evaluation.message
    # The other side is changed: the extension, most of the time of this test, is then built already.
    reference = exported.files[1].read_text()
    assert "torch.sigmoid(x)" in reference
    exported.files[1].write_text(reference.replace("torch.sigmoid(x)", "torch.tanh(x)"))
    evaluation = verify_path(exported.files[0], str(exported.files[1]), cache_dir=cache, profile=False)
    assert evaluation.outcome is Outcome.incorrect, evaluation.message


@pytest.mark.builds
@pytest.mark.slow
def test_a_workdir_is_read_back_and_its_kernels_compile(cuda_result: Path, tmp_path: Path) -> None:
    folder = tmp_path / "workdir"
    exported = export(cuda_result, "cuda-agent", folder)
    assert exported.warnings == ()
    candidate = load_candidate(folder)
    assert isinstance(candidate, ModelCandidate) and candidate.is_workdir and "class Model(" in candidate.reference
    assert screen_candidate(candidate) == ()
    kernels = ["kernels/gate_kernels.cu", "kernels/gate_kernels_binding.cpp"]
    assert sorted(candidate.sources) == ["binding.cpp", "binding_registry.h", *kernels]
    assert "return cuda_extension.gate_kernels_forward(x, self.weight)" in candidate.text
    # What tells pybind11 what a tensor is: without it the function takes none.
    assert "#include <torch/extension.h>" in candidate.sources["kernels/gate_kernels_binding.cpp"]
    failed = compile_kernels(candidate, "sm_90", choose("auto"), threading.Event())
    assert failed is None, failed.diagnostics if failed else ""


def test_the_launcher_of_cuda_kernels_is_what_the_plan_says(cuda_result: Path, tmp_path: Path) -> None:
    text = export(cuda_result, "kernelbench", tmp_path / "out").files[0].read_text()
    assert screen_python(text) == ()
    assert text.count("sigmoid(float x)") == 1 and "#pragma once" not in text
    assert "gate<<<dim3((unsigned)(d_B), (unsigned)(INT64_C(1))," in text
    assert "torch::Tensor gate_kernels_forward(torch::Tensor t_x0, torch::Tensor t_w);" in text


EXPRESSIONS = ["B*64 + 7", "cdiv(B*3, 4) % 5", "min(B, 128) - max(N, 2)*0", "B//3*N", "-1*N + 2*N"]


def test_expressions_of_sizes_mean_the_same_in_cpp(tmp_path: Path) -> None:
    lines = [f'  printf("%lld\\n", (long long)({to_cpp(one)}));' for one in EXPRESSIONS]
    body = "#include <cstdint>\n#include <cstdio>\nint main() { const int64_t d_B = 37, d_N = 5;\n"
    (tmp_path / "main.cpp").write_text(body + "\n".join(lines) + "\n}\n")
    subprocess.run(["g++", "main.cpp", "-o", "main"], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.split()
    assert printed == [str(evaluate(one, {"B": 37, "N": 5})) for one in EXPRESSIONS]


def test_prepared_buffers_and_scratch_are_part_of_the_launcher(tmp_path: Path) -> None:
    """The exported code is compiled and run by hand: packing doubles the weights, and the main kernel adds them."""
    row = BufferSpec(name="x", dtype="f32", shape=("N",))
    plan = Plan(
        target="cpu",
        dims=("N",),
        inputs=(row,),
        outputs=(msgspec.structs.replace(row, name="y"),),
        packed=(msgspec.structs.replace(row, name="twice"),),
        prepare=(Launch(symbol="pack", args=(("from", "x"), ("to", "twice"), ("n", "N"))),),
        launches=(Launch(symbol="add", args=(("a", "x"), ("b", "twice"), ("y", "y"), ("n", "N"))),),
    )
    source = (
        '#include "plan.h"\nextern "C" void pack(const pack_args* a)'
        " { for (int64_t i = 0; i < a->n; ++i) a->to[i] = 2 * a->from[i]; }\n"
        'extern "C" void add(const add_args* a)'
        " { for (int64_t i = 0; i < a->n; ++i) a->y[i] = a->a[i] + a->b[i]; }\n"
    )
    main = (
        "#include <cstdio>\nint main() { float x[3] = {1, 2, 3}, y[3], t[3];\n"
        "  void* const buffers[] = {x, y, t}; const int64_t sizes[] = {3};\n"
        '  three_launch(buffers, sizes); printf("%g %g %g", y[0], y[1], y[2]); }\n'
    )
    candidate = Candidate(plan=plan, sources={"all.cpp": source})
    (tmp_path / "main.cpp").write_text(kernel_text(candidate) + launcher_text(plan, "three") + main)
    subprocess.run(["g++", "main.cpp", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout == "3 6 9"


USE = """
import sys, warnings
warnings.simplefilter("error", RuntimeWarning)
sys.path.insert(0, sys.argv[1])
import torch, gate_kernels
from gate_kernels import Gate
module, x = Gate().eval(), torch.randn(5, 64)
with torch.no_grad():
    torch.testing.assert_close(module(x), x * torch.sigmoid(x) * module.weight * 1.5)
module(x)
print(gate_kernels.__file__, gate_kernels.kernels.counters()["Gate"])
"""


@pytest.mark.builds
@pytest.mark.slow
def test_a_package_is_imported_and_installed_without_this_tool(result: Path, tmp_path: Path, python: Python) -> None:
    exported = export(result, "package", tmp_path / "out")
    assert exported.files[0] == tmp_path / "out" / "gate_kernels"
    served = "{'kernel': 1, 'fallbacks': {'gradient': 1}}"
    assert python(USE, tmp_path, str(tmp_path / "out")).strip().endswith(served)
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "--target", site, tmp_path / "out"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "out")
    assert str(site) in python(USE, tmp_path, str(site)) and served in python(USE, tmp_path, str(site))


def test_what_cannot_be_exported_is_refused(result: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        export(result, "package", tmp_path / "full")
    with pytest.raises(UsageError, match="for the CPU"):
        export(result, "cuda-agent", tmp_path / "out")
    task = decode((result / "task.json").read_bytes(), KernelTask)
    relative = task.content.replace("import torch\n", "import torch\nfrom . import other\n", 1)
    change(result / "task.json", content=relative)
    with pytest.raises(UsageError, match="imports from its own package"):
        export(result, "package", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.builds
@pytest.mark.slow
def test_an_inline_file_runs_as_kernelbench_runs_it(result: Path, tmp_path: Path, python: Python) -> None:
    text, reference = export(result, "kernelbench", tmp_path / "out").files[:2]
    assert python(AS_KERNELBENCH_DOES, tmp_path, str(reference), str(text)) == "as module\n"


def test_what_has_no_inline_form_runs_through_a_package(result: Path, tmp_path: Path, python: Python) -> None:
    """Here because of a strided buffer; libraries, PyTorch's calls and sizes of no single axis go the same way."""
    strided = BufferSpec(name="unused", dtype="f32", shape=("B", "64"), strides=("64", "1"))
    change(result / "plan.json", scratch=[to_builtins(strided)])
    text, reference, *package = export(result, "kernelbench", tmp_path / "out").files
    assert (tmp_path / "out" / "model_new_kernels" / "load.py") in package
    assert python(AS_KERNELBENCH_DOES, tmp_path, str(reference), str(text)) == "as package\n"
    # A file that was moved finds the folder beside it; without the folder it says so.
    (tmp_path / "out").rename(tmp_path / "moved")
    moved = "import sys; sys.path.insert(0, 'moved'); import model_new; print(model_new.ModelNew.__name__)"
    assert python(moved, tmp_path) == "ModelNew\n"
    gone = "try:\n exec(open('moved/model_new.py').read(), {})\nexcept FileNotFoundError as error:\n print(error)"
    assert "export them again" in python(gone, tmp_path)


def test_functions_of_the_renamed_class_have_its_new_name() -> None:
    """An attribute that is a function is compared by its name, which begins with that of the class."""
    inside = {"f": "Model.__init__.<locals>.<lambda>", "g": "[MyModel.setup.<locals>.g, Model]", "(class)": "Block"}
    root = {"call": "partial Model.setup.<locals>.h () {}", "(class)": "Model"}
    document = {"guard": {"attributes": {"": root, "block": inside}}}
    renamed = json.loads(_renamed(json.dumps(document).encode(), "Model"))["guard"]["attributes"]
    assert renamed[""] == {"call": "partial ModelNew.setup.<locals>.h () {}", "(class)": "ModelNew"}
    assert renamed["block"] == {**inside, "f": "ModelNew.__init__.<locals>.<lambda>"}


def test_inline_kernels_can_be_declined(result: Path, tmp_path: Path) -> None:
    exported = export(result, "kernelbench", tmp_path / "out", inline=False)
    assert "load_inline" not in exported.files[0].read_text() and len(exported.files) > 5


def test_a_size_that_no_axis_shows_is_refused_in_a_workdir(cuda_result: Path, tmp_path: Path) -> None:
    change(cuda_result / "plan.json", dims=["B", "M"])
    with pytest.raises(UsageError, match="size M"):
        export(cuda_result, "cuda-agent", tmp_path / "out")
