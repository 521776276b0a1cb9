"""The same checks on a GPU: three architectures in the package, the present one checked, the exports verified."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from kernel_assistant.records import Evaluation, decode
from kernel_assistant.session.reporting.check_report import CheckReport, CheckStatus
from kernel_assistant.targets.cuda import SHIPPED
from kernel_assistant.worker.applied.parts import Parts
from tests.check.conftest import write_workspace

pytestmark = [pytest.mark.slow, pytest.mark.gpu, pytest.mark.timeout(900)]

SOURCE = """#include "plan.h"

extern "C" __global__ void gate(const __grid_constant__ gate_args a) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= a.rows * a.width) return;
    float x = a.x[i];
    a.out[i] = x / (1.0f + __expf(-x)) * a.w[i % a.width] * 1.5f;
}
"""


@pytest.fixture(scope="module")
def cuda_project(command, verified: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    shutil.copy(verified / "model.py", folder / "model.py")
    write_workspace(folder, "cuda", "gate.cu", SOURCE, grid=("cdiv(B*64, 256)", "1", "1"), block=("256", "1", "1"))
    done = command("verify", "workspace", "--reference", "model.py", "--python", sys.executable, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    applied = command("apply", "last", "--force", cwd=folder)
    assert applied.returncode == 0, applied.stderr
    return folder


def test_three_architectures_are_shipped_and_the_one_here_holds(command, cuda_project: Path) -> None:
    kernels = Parts(str(cuda_project / "model_kernels"), "Gate")
    provenance = json.loads(kernels.read("provenance.json"))
    shipped = {name.split(".")[1] for name in kernels.names() if name.endswith(".cubin")}
    assert shipped == {*SHIPPED, provenance["verified_on"]} and provenance["left_out"] == {}
    arguments = ("check", "--json", "--fail-under", "0.0001", "--kernels", "--python", sys.executable)
    done = command(*arguments, cwd=cuda_project)
    (found,) = decode(done.stdout, CheckReport).classes
    assert found.status is CheckStatus.ok and found.target == "cuda", found.message
    assert found.binary == f"kernels.{provenance['verified_on']}.cubin"
    assert found.applied is not None and found.timing is not None


@pytest.mark.parametrize("form", ["kernelbench", "cuda-agent"])
def test_an_export_is_verified(command, cuda_project: Path, form: str, tmp_path: Path) -> None:
    rows = json.loads(command("history", "--json", cwd=cuda_project).stdout)
    wanted = ("verify", "cuda", "model.py:Gate")
    job = next(row["job"] for row in rows if (row["kind"], row["target"], row["task"]) == wanted)
    done = command("export", job, tmp_path / "out", "--to", form, cwd=cuda_project)
    assert done.returncode == 0, done.stderr
    candidate = tmp_path / "out" / "model_new.py" if form == "kernelbench" else tmp_path / "out"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    arguments = ("--reference", tmp_path / "out" / "model.py", "--json", "--python", sys.executable)
    verified = command("verify", candidate, *arguments, cwd=tmp_path, PATH=path)
    assert verified.returncode == 0 and decode(verified.stdout, Evaluation).correct, verified.stdout + verified.stderr
