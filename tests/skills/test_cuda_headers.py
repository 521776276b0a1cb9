"""The CUDA headers: they compile for every shipped architecture, and on a GPU they compute the right values."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.environment.builds.headers import included, shipped
from kernel_assistant.environment.screens.screen import screen
from kernel_assistant.records import Candidate, OpGraph
from kernel_assistant.targets import cuda
from kernel_assistant.worker.applied.binaries import driver
from kernel_assistant.worker.runner import executor
from tests.skills.harness import Bound, compile_cuda, unit_text
from tests.skills.program import Program
from tests.skills.programs import programs

PROGRAMS = programs()
#: Of each kind one, so that three architectures take seconds.
FEW = (
    *("gate_f32", "layer_norm_f32", "softmax_bf16", "spread", "reduced", "chunk_scan", "turned_f16", "pool_3d"),
    *("running_back", "down_columns", "tall", "placed_bf16", "pool_beside"),
)
PRODUCTS = ("product_f32_fast_cr", "product_f32_accurate_rc", "product_bf16_fast_rc")
EMPTY = OpGraph(dims={}, inputs=(), nodes=(), outputs=())


@pytest.mark.builds
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("arch", cuda.SHIPPED)
def test_headers_compile_without_a_warning(arch: str, tmp_path: Path) -> None:
    text = unit_text(PROGRAMS[name] for name in (*FEW, *PRODUCTS))
    assert set(included([text])) >= {name for name in shipped() if name.endswith(".cuh")}
    assert compile_cuda(text, tmp_path, [arch])[arch].stat().st_size > 0


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_a_row_has_the_vectors_that_its_columns_take(tmp_path: Path) -> None:
    """The compiler refuses a row that does not fit into registers, with a message that says what to do instead."""
    same = 'static_assert(sizeof(ka::row_of<{}>) == sizeof(ka::row<{}>), "vectors");'
    pairs = {"128, 4, 2629": "128, 4, 6", "128, 4, 2560": "128, 4, 5", "32, 8, 1": "32, 8, 1", "1, 4, 128": "1, 4, 32"}
    text = "\n".join(['#include "ka/rows.cuh"', *(same.format(*pair) for pair in pairs.items())])
    compile_cuda(text, tmp_path, ["sm_90"])
    with pytest.raises(AssertionError, match="too long for its threads: more of them, or ka::fold_row"):
        compile_cuda(text + "\nusing far = ka::row_of<32, 4, 5000>;", tmp_path, ["sm_90"])


@pytest.mark.parametrize("name", [name for name in shipped() if name.startswith("ka/")])
def test_no_header_has_what_the_screen_refuses(name: str) -> None:
    """An export inserts the headers' text into the candidate's own text."""
    plan = PROGRAMS["gate_f32"].plan
    candidate = Candidate(plan=plan, sources={"kernel.cu": f'#include "{name}"\n', name: shipped()[name]})
    assert [one for one in screen(candidate, EMPTY) if one.file != "plan.json"] == []


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.zeros(1, device="cuda")
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    cubin = compile_cuda(unit_text(PROGRAMS.values()), tmp_path_factory.mktemp("unit"), [arch])[arch]
    return executor.CudaModule(driver(torch.cuda.current_device()), cubin.read_bytes())


@pytest.mark.gpu
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_values_are_those_of_float64(program: Program, module: Any) -> None:
    for seed, dims in enumerate(program.sizes):
        bound = Bound(program, dims, module, "cuda", seed)
        inputs = {spec.name: bound.tensors[spec.name].clone() for spec in program.plan.inputs}
        bound.run(0)
        torch.cuda.synchronize()
        first = bound.output.clone()
        assert bound.error() <= program.bound, dims
        assert all(torch.equal(bound.tensors[name], before) for name, before in inputs.items())
        bound.output.fill_(float("nan"))
        bound.run(0)
        torch.cuda.synchronize()
        assert torch.equal(bound.output, first), "another result from the same inputs"


@pytest.mark.gpu
@pytest.mark.parametrize("layouts", ["rr", "rc", "cr", "cc"])
def test_three_tf32_products_are_as_exact_as_float32(layouts: str, module: Any) -> None:
    """Long sums, in which truncating accumulators would be visible, compared with PyTorch's own error."""
    program = PROGRAMS[f"product_f32_accurate_{layouts}"]
    bound = Bound(program, {"M": 260, "N": 132, "K": 20001}, module, "cuda")
    bound.run(0)
    torch.cuda.synchronize()
    inputs = [bound.tensors[spec.name] for spec in program.plan.inputs]
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, False
    theirs = program.exact(*inputs)
    torch.backends.cuda.matmul.allow_tf32 = before
    want = program.exact(*(one.double() for one in inputs))
    assert (bound.output.double() - want).norm() <= 2 * (theirs.double() - want).norm()


@pytest.mark.gpu
def test_what_is_not_finite_stays_so(module: Any) -> None:
    program = PROGRAMS["product_f32_accurate_rr"]
    bound = Bound(program, {"M": 64, "N": 64, "K": 64}, module, "cuda")
    bound.tensors["x0"][3, 5], bound.tensors["x0"][7, 9] = float("nan"), float("inf")
    bound.tensors["x1"].abs_().add_(0.1)
    bound.run(0)
    torch.cuda.synchronize()
    assert bound.output[3].isnan().all() and bound.output[7].isposinf().all()
    assert bound.output[:3].isfinite().all()
