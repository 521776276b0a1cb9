"""A header that a candidate names is found when the candidate is screened, compiled, kept as a result, applied and
exported.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.apply import apply_result, export
from kernel_assistant.apply.applied import find_applied
from kernel_assistant.environment.builds import headers
from kernel_assistant.environment.builds.compile import Binary, Compiler
from kernel_assistant.environment.freeform_build import compile_kernels
from kernel_assistant.environment.freeform_candidate import ModelCandidate
from kernel_assistant.environment.screens.screen import screen
from kernel_assistant.environment.session import Environment
from kernel_assistant.records import Candidate, Outcome, Tier
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.session.artifacts import read_workspace, write_result
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.worker.applied.parts import Parts
from tests.judge import kernels

SOURCE = """#include "plan.h"
#include "ka/rows.h"

extern "C" void norm(const norm_args* a) {
  ka::rows(a->rows, 256, [=](int64_t r) {
    const float* x = a->x + r * 256;
    const double mean = ka::fold_row<ka::sum>(256, [](float v) { return v * v; }, x) / 256;
    const float scale = ka_rsqrt((float)mean + 1e-6f);
    ka::map_row(256, [=](float v, float w) { return v * scale * w; }, a->o + r * 256, x, a->w);
  });
}
"""
WANTED = {"ka/rows.h", "ka/pointwise.h", "ka_cpu.h", "ka_math.h"}
RUN = """
import torch, norm, norm_kernels
module = norm.Norm(256).eval()
x = torch.randn(48, 256)
with torch.no_grad():
    got = module(x)
want = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * module.scale
torch.testing.assert_close(got, want)
print(norm_kernels.counters()["Norm"]["kernel"])
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    folder = tmp_path_factory.mktemp("norm")
    worker = kernels.new_worker(folder / "worker.log")
    with kernels.environment(worker, folder / "cache") as environment:
        yield environment
    worker.close()


@pytest.fixture(scope="module")
def candidate() -> Candidate:
    return kernels.candidate(source=SOURCE)


@pytest.fixture(scope="module")
def result(opened: Environment, candidate: Candidate, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (evaluation,) = opened.evaluate([candidate], Tier.quick)
    assert evaluation.outcome is Outcome.correct, evaluation.message
    folder = tmp_path_factory.mktemp("result")
    about = {"graph": opened.graph, "device": opened.device, "facts": opened.facts, "trajectory": None}
    made = {"candidate": candidate, "evaluation": evaluation, "binaries": opened.binaries(candidate)}
    write_result(folder, task=kernels.task(), **about, **made)
    return folder


def test_a_result_holds_the_headers(result: Path, candidate: Candidate, opened: Environment) -> None:
    read = read_workspace(result)
    assert set(read.sources) == {*candidate.sources, *WANTED}
    assert screen(read, opened.graph) == ()
    assert headers.complete(read) == read


@pytest.mark.slow
def test_the_applied_package_holds_the_headers_and_runs(result: Path, tmp_path: Path) -> None:
    source = tmp_path / "project" / "norm.py"
    source.parent.mkdir()
    source.write_text(kernels.MODULE)
    package = apply_result(result, source).package
    assert {f"sources/{name}" for name in WANTED} <= set(Parts(str(package), "Norm").names())
    (applied,) = find_applied([package])
    assert set(applied.candidate.sources) >= WANTED
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=source.parent, env=clean, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr


def test_an_export_holds_the_headers_text(result: Path, tmp_path: Path) -> None:
    export(result, "kernelbench", tmp_path / "out")
    text = (tmp_path / "out" / "model_new.py").read_text()
    assert "namespace ka {" in text
    assert '#include "ka' not in text


def test_another_header_is_another_build(candidate: Candidate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(cpu.facts(), choose("auto"), tmp_path / "cache", threading.Event())
    built = [compiler.build(one) for one in (candidate, candidate, headers.complete(candidate))]
    changed = {name: f"{text}// Changed.\n" for name, text in headers.shipped().items()}
    monkeypatch.setattr(headers, "shipped", lambda: changed)
    built.append(compiler.build(candidate))
    assert [one.cached for one in built if isinstance(one, Binary)] == [False, True, True, False], built


def test_an_own_header_of_the_same_name_wins(candidate: Candidate) -> None:
    sources = {**candidate.sources, "ka/rows.h": "// Mine.\n"}
    assert headers.complete(Candidate(plan=candidate.plan, sources=sources)).sources == sources


@pytest.mark.parametrize("name", ["ka/rows.hpp", "ka/../ka_cpu.h", "/etc/passwd", "rows.h", "ka/ka/rows.h"])
def test_what_is_no_header_of_ours_is_refused(name: str, opened: Environment) -> None:
    found = screen(kernels.candidate(("ka/rows.h", name), source=SOURCE), opened.graph)
    assert [one.message for one in found] == [f'include "{name}" is not allowed']


def test_no_folder_but_ours_is_a_place_for_sources(candidate: Candidate) -> None:
    for name in ("kb/rows.h", "ka/ka/rows.h", "ka/../x.h", "ka/.h"):
        with pytest.raises(ValueError, match="source file name"):
            Candidate(plan=candidate.plan, sources={**candidate.sources, name: ""})


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_a_workdir_includes_them_too(tmp_path: Path) -> None:
    text = """#include "ka/pointwise.cuh"
__global__ void twice(float* out, const float* x, int64_t n) {
  ka::pointwise<4>(n, [](float v) { return 2.0f * v; }, out, x);
}
"""
    workdir = ModelCandidate(tmp_path, "", "", tmp_path, {"kernels/twice.cu": text})
    assert compile_kernels(workdir, cuda.SHIPPED[0], choose("auto"), threading.Event()) is None
