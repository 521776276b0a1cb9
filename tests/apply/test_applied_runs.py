"""The applied file in processes with the real torch: values, reasons for fallbacks, and torch's own changes to
classes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.apply import AppliedOptions, apply_result, export_model_new, find_applied, undo
from kernel_assistant.apply.conditions import runs_when
from kernel_assistant.apply.package import packed
from kernel_assistant.worker.applied.binaries import Binaries, NoBinary, processor_flags
from kernel_assistant.worker.applied.parts import Parts
from tests.apply.conftest import STRICT, MakeResult, Python, change
from tests.common.packages import lay_out

_USE = """
import model, model_kernels
from model import Gate

counted = {"kernel": 0, "fallbacks": {}}

def counts():
    # Since the last time. Nothing is reset: launchers of earlier calls stay.
    global counted
    last, counted = counted, model_kernels.counters()["Gate"]
    new = {reason: count - last["fallbacks"].get(reason, 0) for reason, count in counted["fallbacks"].items()}
    return counted["kernel"] - last["kernel"], {reason: count for reason, count in new.items() if count}

def plain(module, x):
    return module.out(x * torch.sigmoid(x) * module.weight * module.scale)

def expect(reason, call=lambda: module(x), reference=None):
    # A call, that of the module unless another is named, runs the kernels, or the original for this reason. From the
    # third time on the launcher of a call is found by the layout of all tensors.
    counts()
    wanted = plain(module, x) if reference is None else reference
    for _ in range(3):
        torch.testing.assert_close(call(), wanted)
    kernel, fallbacks = counts()
    assert (kernel, fallbacks) == ((0, {reason: 3}) if reason else (3, {})), (reason, kernel, fallbacks)

module = Gate().eval()
x = torch.randn(5, 64)
"""
START = STRICT + _USE


@pytest.fixture
def applied(model: Path, result: Path) -> Path:
    """The user's file with kernels."""
    apply_result(result, model)
    return model


@pytest.mark.slow
def test_guard(applied: Path, python: Python) -> None:
    """Every call that differs from the verified ones goes to the original, every verified call goes to the kernel."""
    code = """
import functools, copy
from torch.func import vmap
torch.set_grad_enabled(False)
for reason, y in [
    *(("", torch.randn(rows, 64)) for rows in (1, 3, 8, 1000)),
    ("", torch.randn(64, 1).t()),
    *(("shape", torch.ones(64)), ("shape", x[None]), ("size", x[:0]), ("size", torch.randn(5001, 64))),
    *(("dtype", x.double()), ("strides", torch.randn(64, 5).t())),
    ("alignment", torch.randn(5 * 64 + 1)[1:].view(5, 64)),
]:
    expect(reason, lambda: module(y), plain(module, y))
expect("", lambda: module(x=x))

with torch.enable_grad():
    expect("gradient", lambda: module(x).detach(), plain(module, x))
    out = module(x.clone().requires_grad_())
    out.sum().backward()
    assert module.weight.grad is not None
    module.requires_grad_(False)
    expect("")
    module.requires_grad_(True)
with torch.inference_mode():
    expect("")
with torch.autocast("cpu", dtype=torch.bfloat16):
    expect("autocast")
expect("transform", lambda: vmap(module, in_dims=0)(x[:, None]), plain(module, x[:, None]))
from torch.utils.flop_counter import FlopCounterMode
with FlopCounterMode(display=False):
    expect("transform")
import torch.autograd.forward_ad as fwAD
with fwAD.dual_level():
    expect("transform", lambda: fwAD.unpack_dual(module(fwAD.make_dual(x, x))).primal, plain(module, x))
    assert counts()[0] == 0
traced = torch.jit.trace(module, x)
torch.testing.assert_close(traced(2 * x), plain(module, 2 * x))
torch.testing.assert_close(torch.jit.script(module)(2 * x), plain(module, 2 * x))

out = module.out
for change, change_back in [
    (module.train, module.eval),
    (out.train, out.eval),
    (lambda: setattr(module, "scale", 2.0), lambda: setattr(module, "scale", float("1.5"))),
    (lambda: setattr(module, "extra", 1), lambda: delattr(module, "extra")),
    (lambda: setattr(out, "forward", lambda x: x + 1), lambda: delattr(out, "forward")),
    (lambda: setattr(module, "out", torch.nn.ReLU().eval()), lambda: setattr(module, "out", out)),
]:
    change()
    expect("attributes")
    change_back()
    expect("")
module._is_initialised_by_a_library = True
expect("")
hook = module.out.register_forward_hook(lambda m, i, o: o + 1)
expect("hooks")
hook.remove()
hook = module.register_forward_hook(lambda m, i, o: o + 1)
expect("", lambda: module(x), plain(module, x) + 1)
hook.remove()
hook = torch.nn.modules.module.register_module_forward_pre_hook(lambda m, i: None)
expect("hooks")
hook.remove()

module.weight.mul_(2)
expect("")
module.weight = torch.nn.Parameter(torch.randn(64))
expect("")
module.weight.data = torch.randn(64)
expect("")
module.half()
expect("dtype", lambda: module(x.half()), plain(module, x.half()))
module.float()
expect("")
torch.nn.utils.parametrize.register_parametrization(module, "weight", torch.nn.Identity())
expect("subclass")
torch.nn.utils.parametrize.remove_parametrizations(module, "weight")
expect("")

class Overriding(Gate):
    def forward(self, x):
        return x + 1
class Calling(Gate):
    def forward(self, x):
        return super().forward(x) + 1
counts()
assert torch.equal(Overriding().eval()(x), x + 1)
assert counts() == (0, {})
expect("subclass", lambda: Calling().eval()(x), plain(Calling().eval(), x) + 1)

with torch.profiler.profile() as profile:
    expect("")
assert any("kernel_assistant::gate_" in event.key for event in profile.key_averages())
model_kernels.set_enabled(False)
torch.testing.assert_close(module(x), plain(module, x))
assert counts() == (0, {})
"""
    python(START + code, applied.parent)


def test_what_torch_and_python_do_to_modules(applied: Path, python: Python) -> None:
    code = """
import copy, io, os, pickle, threading
torch.set_grad_enabled(False)
twin = copy.deepcopy(module)
expect("", lambda: twin(x), plain(module, x))
again = pickle.loads(pickle.dumps(module))
assert type(again) is Gate
expect("", lambda: again(x), plain(module, x))
buffer = io.BytesIO()
torch.save(module, buffer); buffer.seek(0)
loaded = torch.load(buffer, weights_only=False)
expect("", lambda: loaded(x), plain(module, x))
fresh = Gate().eval()
fresh.load_state_dict(module.state_dict(), strict=True)
expect("", lambda: fresh(x), plain(module, x))
assert Gate.__name__ == "Gate" and Gate.forward.__doc__ == Gate.forward.__wrapped__.__doc__

failures = []
def work(seed):
    mine, y = Gate().eval(), torch.randn(10 + seed, 64, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for _ in range(200):
            if not torch.allclose(mine(y), plain(mine, y), atol=1e-5):
                failures.append(seed)
counts()
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not failures
assert counts() == (800, {})

import gc
guard = dict(zip(Gate.forward.__code__.co_freevars, Gate.forward.__closure__))["run"].cell_contents.__self__
del twin, again, fresh
gc.collect()
assert len(guard._watched) <= 1, len(guard._watched)

torch.set_num_threads(1)
pid = os.fork()
if pid == 0:
    ok = torch.allclose(module(x), plain(module, x), atol=1e-5)
    os._exit(0 if ok else 1)
assert os.waitpid(pid, 0)[1] == 0

import importlib
importlib.reload(model)
expect("", lambda: model.Gate().eval()(x), plain(module, x) if False else plain(Gate().eval(), x))
import importlib.util
spec = importlib.util.spec_from_file_location("another_name", "model_kernels/__init__.py")
another = importlib.util.module_from_spec(spec)
spec.loader.exec_module(another)
assert another.counters() == model_kernels.counters()

import os
from pathlib import Path
before = {line.split()[4] for line in open("/proc/self/maps") if "/memfd:kernels" in line}
library = Path("model_kernels/Gate.kernels")
Path("new.so").write_bytes(library.read_bytes())
Path("new.so").replace(library)
importlib.reload(model)
counts()
expect("", lambda: model.Gate().eval()(x), plain(Gate().eval(), x))
mapped = {line.split()[4] for line in open("/proc/self/maps") if "/memfd:kernels" in line}
assert len(mapped) == len(before) + 1, (before, mapped)
"""
    python(START + code, applied.parent)


@pytest.mark.programs
@pytest.mark.slow
def test_compile_and_export(applied: Path, python: Python) -> None:
    code = """
class Parent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.gate = torch.nn.Linear(64, 64), module
    def forward(self, x):
        return torch.relu(self.gate(self.first(x)))

parent = Parent().eval()
want = lambda x: torch.relu(plain(module, parent.first(x)))
compiled = torch.compile(parent, fullgraph=True, dynamic=True)
with torch.no_grad():
    counts()
    torch.testing.assert_close(compiled(x), want(x))
    y = torch.randn(9, 64)
    torch.testing.assert_close(compiled(y), want(y))
    kernel, fallbacks = counts()
    assert kernel == 2 and not fallbacks, (kernel, fallbacks)
    module.scale = 3.0
    torch.testing.assert_close(compiled(x), want(x))
    assert counts()[0] == 0
    module.scale = 1.5
    module.out.train()
    torch.testing.assert_close(compiled(x), want(x))
    assert counts()[0] == 0
    module.out.eval()
    torch.testing.assert_close(compiled(x.view(1, 5, 64)), want(x.view(1, 5, 64)))
    assert counts()[0] == 0
    torch.testing.assert_close(compiled(torch.ones(5001, 64)), want(torch.ones(5001, 64)))
    assert counts()[0] == 0
torch.testing.assert_close(compiled(x), want(x))
compiled(x).sum().backward()
assert module.weight.grad is not None
assert counts()[0] == 0

with torch.no_grad():
    dims = ({0: torch.export.Dim("rows", min=2, max=4096)},)
    for strict in (False, True):
        program = torch.export.export(parent, (x,), dynamic_shapes=dims, strict=strict)
        assert not any("kernel_assistant" in str(node.target) for node in program.graph.nodes)
        torch.testing.assert_close(program.module()(y), want(y))
"""
    python(START + code, applied.parent)


@pytest.mark.programs
@pytest.mark.slow
def test_export_with_the_operator(model: Path, result: Path, python: Python) -> None:
    options = AppliedOptions(exported="kernel", compiled_parent="original", min_elements=128)
    apply_result(result, model, options=options)
    code = """
import io
y = torch.randn(9, 64)
with torch.no_grad():
    expect("small", lambda: module(x[:1]), plain(module, x[:1]))
    for strict in (False, True):
        dims = ({0: torch.export.Dim("rows", min=2, max=4096)},)
        program = torch.export.export(module, (x,), dynamic_shapes=dims, strict=strict)
        assert any("kernel_assistant" in str(node.target) for node in program.graph.nodes), (strict, program)
        torch.testing.assert_close(program.module()(y), plain(module, y))
        buffer = io.BytesIO()
        torch.export.save(program, buffer); buffer.seek(0)
        torch.testing.assert_close(torch.export.load(buffer).module()(y), plain(module, y))
    counts()
    torch.testing.assert_close(torch.compile(module, fullgraph=True, backend="eager")(x), plain(module, x))
    kernel, fallbacks = counts()
    assert kernel == 0 and set(fallbacks) == {"compiled: not served"}
operators = torch.ops.kernel_assistant
(name,) = [name for name in dir(operators) if name.startswith("gate_")]
torch.library.opcheck(getattr(operators, name).default, (x, module.weight.detach()))
"""
    python(START + code, model.parent)


def damage(folder: Path, problem: str) -> None:
    package = folder / "model_kernels"
    what, _, name = problem.partition(" ")
    if problem == "edited class":
        (folder / "model.py").write_text((folder / "model.py").read_text().replace("torch.sigmoid(x)", "torch.tanh(x)"))
    elif problem == "no folder":
        shutil.rmtree(package)
    elif what == "no":
        (package / name).unlink()
    elif what == "half":
        data = (package / name).read_bytes()
        (package / name).write_bytes(data[: len(data) // 2])
    else:
        parts = Parts(str(package), "Gate")
        files = {name: parts.read(name) for name in parts.names()}
        image = files.pop("kernels.x86-64-avx2.so")
        if problem == "wrong architecture":
            files["kernels.aarch64.so"] = image
        else:
            files["kernels.x86-64-avx2.so"] = image + b"\0" if problem == "changed library" else b"not a library"
        for name, data in packed("Gate", files).items():
            (package / name).write_bytes(data)


#: Without any of these, or with half of it, the kernels cannot run.
FILES = ("load.py", "_runtime.txt", "Gate.txt", "Gate.kernels")


@pytest.mark.programs
@pytest.mark.slow
def test_one_warning_and_the_original(tmp_path: Path, user_file: str, make_result: MakeResult, python: Python) -> None:
    problems = ["wrong architecture", "bad library", "changed library", "edited class", "no folder"]
    problems += [f"{what} {name}" for what in ("no", "half") for name in FILES]
    for problem in problems:
        (tmp_path / "all" / problem).mkdir(parents=True)
        (tmp_path / "all" / problem / "model.py").write_text(user_file)
        apply_result(make_result(user_file), tmp_path / "all" / problem / "model.py")
        damage(tmp_path / "all" / problem, problem)
    code = """
import os, runpy, sys, warnings
import torch
for problem in sys.argv[1:]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        module, x = runpy.run_path(os.path.join(problem, "model.py"))["Gate"]().eval(), torch.randn(3, 64)
        gate = torch.tanh(x) if problem == "edited class" else torch.sigmoid(x)
        with torch.no_grad():
            for _ in range(3):
                torch.testing.assert_close(module(x), x * gate * module.weight * 1.5)
            torch._dynamo.reset()
            torch.compile(module, backend="eager", fullgraph=True)(x)
    ours = [str(one.message) for one in seen if issubclass(one.category, RuntimeWarning)]
    assert len(ours) == 1, (problem, ours)
"""
    python(code, tmp_path / "all", *problems)


def test_a_large_result_keeps_its_memory_until_it_is_dropped(applied: Path, python: Python) -> None:
    """Also where a default device is another one, and where a view is all that is left."""
    code = """
torch.set_grad_enabled(False)
module(x)
(memory,) = [one for name, one in sys.modules.items() if name.endswith(".host_memory")]
memory.LEAST_BYTES = 1 << 12
many = [torch.randn(1000, 64) for _ in range(3)]
counts()
results = [module(one) for one in many]
assert len({one.data_ptr() for one in results}) == 3
for got, one in zip(results, many):
    torch.testing.assert_close(got, plain(module, one))
last, address = results[0][5], results[0].data_ptr()
del results, got
again = [module(many[1]) for _ in range(2)]
assert address not in {one.data_ptr() for one in again}
torch.testing.assert_close(last, plain(module, many[0])[5])
del last
with torch.device("meta"):
    more = [module(many[2]) for _ in range(2)]
assert address in {one.data_ptr() for one in more}
torch.testing.assert_close(more[1], plain(module, many[2]))
kernel, fallbacks = counts()
assert (kernel, fallbacks) == (7, {}), (kernel, fallbacks)
"""
    python(START + code, applied.parent)


def test_without_a_file_of_its_own_the_original_runs(applied: Path, python: Python, tmp_path: Path) -> None:
    """Code that is executed as text, as in a notebook, and a file in an archive: there is one warning, and the original
    runs.
    """
    shutil.make_archive(str(tmp_path / "code"), "zip", applied.parent)
    code = """
import sys, warnings
import torch
sys.path.insert(0, "../code.zip")
texts = {"exec": open("model.py").read(), "zip": "from model import Gate"}
for name, text in texts.items():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        names = {}
        exec(text, names)
    (one,) = [str(one.message) for one in seen if issubclass(one.category, RuntimeWarning)]
    assert "runs its own code" in one and "kernel-assistant undo" in one, one
    module, x = names["Gate"]().eval(), torch.randn(3, 64)
    with torch.no_grad():
        torch.testing.assert_close(module(x), x * torch.sigmoid(x) * module.weight * 1.5)
"""
    python(code, applied.parent)


def test_a_class_is_the_same_to_those_who_read_it(applied: Path, python: Python) -> None:
    """Tests `inspect`, `pickle` of the class and TorchScript, with the kernels and without their folder."""
    code = """
import inspect, pickle, sys, warnings
sys.path.insert(0, "")
import torch
with warnings.catch_warnings():
    warnings.simplefilter("ignore", RuntimeWarning)
    from model import Gate
assert inspect.getsource(Gate.forward).lstrip().startswith("def forward(self, x):")
assert inspect.getsource(Gate).splitlines()[-1].strip().startswith("return self.out(")
assert pickle.loads(pickle.dumps(Gate)) is Gate and inspect.getfile(Gate).endswith("model.py")
x = torch.randn(3, 64)
module = Gate().eval()
with torch.no_grad():
    torch.testing.assert_close(torch.jit.script(module)(x), module(x))
"""
    python(code, applied.parent)
    shutil.rmtree(applied.parent / "model_kernels")
    python(code, applied.parent)


def test_a_package_of_before_is_served_read_and_replaced(applied: Path, result: Path, python: Python) -> None:
    package = applied.parent / "model_kernels"
    lay_out(package)
    assert (package / "Gate" / "plan.json").is_file() and not (package / "Gate.txt").exists()
    python(START + 'torch.set_grad_enabled(False)\nexpect("")\n', applied.parent)
    (old,) = find_applied([package])
    assert old.changed() == [] and old.candidate.sources.keys() == {"gate.cpp", "plan.h"}
    apply_result(result, applied)
    assert not (package / "Gate").exists() and (package / "Gate.txt").is_file()
    assert undo(applied).restored and not package.exists()


def test_one_apply_is_a_handful_of_files(applied: Path) -> None:
    package = applied.parent / "model_kernels"
    files = [path for path in package.rglob("*") if path.is_file()]
    assert len(files) + 1 <= 8
    texts = [path.read_text() for path in files if path.suffix in (".py", ".txt", ".json")]
    assert len(texts) == len(files) - 1 and any("#pragma omp parallel for" in text for text in texts)
    assert any("class Guard:" in text for text in texts)


@pytest.mark.programs
def test_a_program_reports_for_the_processes_that_it_starts_too(applied: Path, tmp_path: Path, python: Python) -> None:
    code = """
import os, runpy, subprocess, sys
calls, children = int(sys.argv[1]), sys.argv[2:]
import torch
module = runpy.run_path("model.py")["Gate"]().eval()
started = [subprocess.Popen([sys.executable, "-c", os.environ["CODE"], count]) for count in children]
with torch.no_grad():
    for _ in range(calls):
        module(torch.randn(5, 64))
for child in started:
    assert child.wait() == 0
"""
    folder = tmp_path / "counters"
    env = {"KERNEL_ASSISTANT_COUNTERS": str(folder), "CODE": code}
    for words, kernel in ((("3", "2", "4"), 9), (("1",), 1)):
        python(code, applied.parent, *words, env=env)
        (report,) = folder.glob("*.json")
        assert json.loads(report.read_text())["classes"]["Gate"] == {"kernel": kernel, "fallbacks": {}}


def test_unaligned_tensors_are_copied_where_that_was_faster(model: Path, result: Path, python: Python) -> None:
    apply_result(result, model, options=AppliedOptions(unaligned="copy"))
    code = """
torch.set_grad_enabled(False)
odd = torch.randn(5 * 64 + 1)[1:].view(5, 64)
assert odd.data_ptr() & 63
expect("", lambda: module(odd), plain(module, odd))
module.weight = torch.nn.Parameter(torch.randn(65)[1:])
expect("")
"""
    python(START + code, model.parent)


def test_a_call_that_came_twice_finds_its_launcher_by_one_comparison(applied: Path, python: Python) -> None:
    code = """
import gc
torch.set_grad_enabled(False)
expect("")
guard = next(one for one in gc.get_objects() if type(one).__name__ == "Guard")
looked_up = guard._looked_up
searches = []
guard._looked_up = lambda *values: searches.append(values) or looked_up(*values)
expect("")
assert not searches
expect("tensor type", lambda: module(torch._neg_view(-x)), plain(module, x))

# Launchers of before are not counted any more, so they are not used any more.
for _ in range(2):
    model_kernels.reset_counters()
    for _ in range(5):
        module(x)
    assert model_kernels.counters()["Gate"]["kernel"] == 5
counted = model_kernels.counters()["Gate"]

guard._reproducible = False
torch.use_deterministic_algorithms(True)
expect("deterministic")
"""
    python(START + code, applied.parent)


def test_what_is_right_at_the_declared_sizes_only_runs_at_these_only(model: Path, result: Path, python: Python) -> None:
    change(result / "evaluation.json", sizes="declared", elsewhere="crashed: …")
    apply_result(result, model)
    code = """
torch.set_grad_enabled(False)
expect("size")
y = torch.randn(8, 64)
expect("", lambda: module(y), plain(module, y))
torch.testing.assert_close(torch.compile(module, backend="eager", dynamic=True)(x), plain(module, x))
assert counts()[1] == {"compiled: size": 1}
"""
    python(START + code, model.parent)
    (applied,) = find_applied([model])
    assert "B = 8" in runs_when(applied.provenance)


def test_the_loader_needs_no_tool_and_is_compiled_once(applied: Path, python: Python) -> None:
    code = f'{START}torch.set_grad_enabled(False)\nexpect("")\nassert "kernel_assistant" not in sys.modules\n'
    python(code, applied.parent, env={"PATH": ""})
    (kept,) = (applied.parent / "model_kernels" / "__pycache__").glob("_runtime.*.pyc")
    before = kept.stat().st_mtime_ns
    python(code, applied.parent)
    assert kept.stat().st_mtime_ns == before
    kept.write_bytes(kept.read_bytes()[:100])
    python(code, applied.parent)
    assert kept.stat().st_size > 100
    undo(applied)
    assert not kept.parent.exists()


PROGRAM = """
import multiprocessing, os, runpy, sys
import torch

def work(calls):
    module = runpy.run_path("model.py")["Gate"]().eval()
    with torch.no_grad():
        for _ in range(calls):
            module(torch.randn(5, 64))
    module(torch.randn(5, 64))

if __name__ == "__main__":
    work(3)
    children = [multiprocessing.get_context(how).Process(target=work, args=(2,)) for how in ("fork", "spawn")]
    [child.start() for child in children], [child.join() for child in children]
    pid = os.fork()
    if pid == 0:
        work(4)
        sys.exit()
    os.waitpid(pid, 0)
    sys.exit(7)
"""


def run_counters(model: Path, python_path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The finished command `kernel-assistant counters ARGUMENTS` in the folder of the file."""
    command = [sys.executable, "-m", "kernel_assistant", "counters", *arguments]
    env = {**os.environ, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=model.parent, env=env, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.programs
def test_counters_of_a_program_are_those_of_all_its_processes(applied: Path, python_path: str) -> None:
    (applied.parent / "program.py").write_text(PROGRAM)
    program = f"{sys.executable} program.py; {sys.executable} program.py"
    done = run_counters(applied, python_path, "--json", "--", "sh", "-c", program)
    assert done.returncode == 7, done.stderr
    document = json.loads(done.stdout)
    (one,) = document["classes"]
    assert (document["exit_code"], one["class"], one["package"]) == (7, "Gate", str(applied.parent / "model_kernels"))
    assert (one["kernel"], one["fallbacks"], one["unused"]) == (2 * (3 + 2 + 2 + 4), {"gradient": 2 * 4}, "")


def test_counters_say_why_kernels_were_not_loaded(applied: Path, python_path: str) -> None:
    applied.write_text(applied.read_text().replace("torch.sigmoid(x)", "torch.tanh(x)"))
    done = run_counters(applied, python_path, "--", sys.executable, "-W", "ignore", "model.py")
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("model_kernels:Gate"))
    assert "never" in row and "has been edited since its kernels were verified" in row


def test_what_a_compiled_program_leaves_to_the_original_is_counted(applied: Path, python: Python) -> None:
    code = """
def compiled(change=lambda: None, y=x, **modes):
    torch._dynamo.reset()
    counts()
    change()
    program = torch.compile(torch.nn.Sequential(module), fullgraph=True, backend="eager")
    with torch.set_grad_enabled(modes.get("grad", False)):
        for _ in range(3):
            torch.testing.assert_close(program(y), plain(module, y))
    kernel, fallbacks = counts()
    return kernel, set(fallbacks)

assert compiled() == (3, set())
assert compiled(grad=True) == (0, {"compiled: gradient"})
assert compiled(y=x.double()) == (0, {"compiled: dtype"})
assert compiled(lambda: setattr(module, "scale", 2.0)) == (0, {"compiled: attributes"})
"""
    python(START + code, applied.parent)


def test_a_mark_of_a_library_that_only_the_verified_instance_had_does_not_count(
    model: Path, result: Path, facts: dict[str, Any], python: Python
) -> None:
    whole = facts["attributes"]
    change(result / "facts.json", attributes={**whole, "": {**whole[""], "_is_initialised_by_a_library": "True"}})
    apply_result(result, model)
    code = """
program = torch.compile(torch.nn.Sequential(module), fullgraph=True, backend="eager")
with torch.no_grad():
    expect("")
    expect("", lambda: program(x), plain(module, x))
"""
    python(START + code, model.parent)


@pytest.mark.programs
@pytest.mark.slow
def test_ways_to_load(tmp_path: Path, user_file: str, make_result: MakeResult, python: Python) -> None:
    """Imported alone, from a package, from a folder without `__init__.py`, by path, and run as a script."""
    code = """
import importlib, importlib.util, os, runpy, sys, warnings
warnings.simplefilter("error", RuntimeWarning)
root = os.getcwd()

def by_path(folder):
    spec = importlib.util.spec_from_file_location("any", os.path.join(root, folder, "model.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

def used():
    loaded = [m for n, m in list(sys.modules.items()) if n.startswith("_kernels_") and n.endswith(".install")]
    return sum(one["kernel"] for m in loaded for one in m.counters().values())

by_path("naïve ordner (1)")
assert used() == 1
runpy.run_path("script/model.py", run_name="__main__")
assert used() == 2
sys.path.insert(0, root)
importlib.import_module("namespace.model")
assert used() == 3
runpy.run_module("package.model", run_name="__main__", alter_sys=True)
assert used() == 4
importlib.import_module("package.model")
assert used() == 5
assert importlib.import_module("package.model_kernels").counters()["Gate"]["kernel"] == 2
sys.path.insert(0, os.path.join(root, "script"))
importlib.import_module("model")
assert used() == 6
"""
    use = "\nwith torch.no_grad():\n    assert torch.isfinite(Gate().eval()(torch.randn(3, 64))).all()\n"
    text = user_file.partition("if __name__")[0] + use
    folders = [tmp_path / "root" / name for name in ("naïve ordner (1)", "script", "namespace", "package")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(text)
        apply_result(make_result(text), folder / "model.py")
    (folders[-1] / "__init__.py").write_text("")
    python(code, tmp_path / "root")
    command = [sys.executable, "-W", "error::RuntimeWarning", str(folders[-1] / "model.py")]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    for folder in folders:
        assert undo(folder / "model.py").restored
        assert (folder / "model.py").read_text() == text
        assert not (folder / "model_kernels").exists()


@pytest.mark.slow
@pytest.mark.parametrize("indent", ["    ", "\t", " "], ids=["blanks", "tabs", "one blank"])
def test_model_new(tmp_path: Path, user_file: str, make_result: MakeResult, python: Python, indent: str) -> None:
    path = export_model_new(make_result(user_file.replace("    ", indent)), tmp_path / "out")
    assert "class ModelNew(nn.Module):" in path.read_text() and "sigmoid(x) * self" not in path.read_text()
    code = """
import sys; sys.path.insert(0, "")
import torch, model_new
torch.manual_seed(0)
module, x = model_new.ModelNew().eval(), torch.randn(5, 64)
assert list(module.state_dict()) == ["weight"]
with torch.no_grad():
    torch.testing.assert_close(module(x), x * torch.sigmoid(x) * module.weight * 1.5)
    try:
        module(x.double())
    except RuntimeError as error:
        print(error)
"""
    assert "dtype" in python(code, path.parent)


def test_the_binary_for_each_compute_capability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact compute capability is preferred, then a lower minor version of the same major version; no other binary
    is ever loaded.
    """
    (tmp_path / "Gate").mkdir()
    cubins = [f"{name}.cubin" for name in ("sm_80", "sm_89", "sm_90", "sm_90a")]
    for name in (*cubins, "x86-64.so", "x86-64.0a1b2c3d.so"):
        (tmp_path / "Gate" / f"kernels.{name}").write_bytes(b"")
    here = Parts(str(tmp_path), "Gate")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")

    def pick(capability: tuple[int, int]) -> str:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        return Binaries(here, "", "cuda", []).pick(torch.device("cuda", 0))

    assert [pick((8, minor)) for minor in (0, 6, 9)] == [f"kernels.sm_{name}.cubin" for name in (80, 80, 89)]
    assert pick((9, 0)) in ("kernels.sm_90.cubin", "kernels.sm_90a.cubin")
    for capability in ((7, 5), (10, 0), (12, 0)):
        with pytest.raises(NoBinary, match=r"no binary for sm_.*only for sm_80, sm_89, sm_90"):
            pick(capability)
    flags, cpu = {"kernels.x86-64.0a1b2c3d.so": sorted(processor_flags())[:2]}, torch.device("cpu")
    assert Binaries(here, "", "cpu", ["of another machine"], flags).pick(cpu) == "kernels.x86-64.0a1b2c3d.so"
    assert Binaries(here, "", "cpu", []).pick(cpu).startswith("kernels.x86-64")
