"""The recorder inside a program: its counts, its samples, and that the program is not affected."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.scan.programs import SCRIPT, class_of, package

ENDINGS = {
    "raise RuntimeError('midway')": (1, "exit"),
    "raise KeyboardInterrupt": (-signal.SIGINT, "exit"),
    "import os; os._exit(5)": (5, "os._exit"),
    "import sys; sys.exit(3)": (3, "exit"),
}


@pytest.mark.slow
def test_a_script_prints_what_it_prints_alone_and_is_counted(write, record):
    path = write("net.py", SCRIPT)
    alone = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    done, (recording,) = record(path)
    assert done.returncode == 0 and done.stdout == alone.stdout
    net, norm, linear = (class_of(recording, name) for name in ("Net", "Norm", "Linear"))
    assert (net.calls, norm.calls, linear.calls) == (3, 3, 6)
    assert net.path == str(path) and net.module == "__main__" and not net.installed
    assert linear.installed and norm.callers == {"Net": 3}
    assert recording.ended == "exit" and recording.clock == "cpu" and recording.main == str(path)


@pytest.mark.programs
def test_every_moment_counts_for_one_class(write, record):
    _, (recording,) = record(write("net.py", SCRIPT))
    net, norm, linear, gelu = (class_of(recording, name) for name in ("Net", "Norm", "Linear", "GELU"))
    assert linear.share_seconds == gelu.share_seconds == 0.0
    assert net.products_seconds == pytest.approx(linear.own_seconds)
    assert sum(cls.share_seconds for cls in recording.classes) == pytest.approx(net.inclusive_seconds)
    assert sum(cls.own_seconds for cls in recording.classes) == pytest.approx(net.inclusive_seconds)
    assert norm.share_seconds == norm.inclusive_seconds > 0
    assert net.inclusive_seconds <= recording.net_seconds < recording.wall_seconds


def test_the_first_round_and_the_first_call_of_each_kind_stand_apart(write, record):
    """The second and the third call of the model count; the third is the first with its size."""
    _, (recording,) = record(write("net.py", SCRIPT))
    norm, net = class_of(recording, "Norm"), class_of(recording, "Net")
    assert (recording.loop, recording.rounds) == ("Net", 2)
    assert 0 < recording.loop_seconds < recording.calls_seconds < recording.net_seconds - recording.startup_seconds
    (configuration,) = norm.configurations
    again = next(one for one in configuration.signatures if one.calls == 2)
    once = next(one for one in configuration.signatures if one.calls == 1)
    assert again.counted_calls == once.counted_calls == 1
    assert norm.inclusive_seconds == pytest.approx(again.seconds + once.seconds)
    assert norm.warm_seconds == pytest.approx(again.seconds) and norm.first_seconds > once.seconds
    assert norm.first_seconds < net.first_seconds and 0 < net.warm_seconds < net.inclusive_seconds


@pytest.mark.programs
def test_signatures_tell_sizes_and_keywords(write, record):
    _, (recording,) = record(write("net.py", SCRIPT))
    (configuration,) = class_of(recording, "Norm").configurations
    small, large = sorted(configuration.signatures, key=lambda one: one.input_bytes)
    assert (small.text, small.calls) == ("(f32[8, 64], scale: 2.0)", 2)
    assert (large.text, large.calls) == ("(f32[16, 64], scale: 2.0)", 1)
    assert (small.output, small.input_bytes, small.output_bytes) == ("{out: f32[8, 64]}", 8 * 64 * 4, 8 * 64 * 4)
    assert small.sample >= 0 and small.exact and not small.training and configuration.kept == "module"
    assert configuration.parameter_bytes == 64 * 4


@pytest.mark.programs
def test_a_package_by_m_keeps_its_exit_code_arguments_and_environment(write, record):
    package(write)
    done, (recording,) = record("-m", "pkg", "--steps", "1")
    assert done.returncode == 7 and done.stdout == "said ['--steps', '1']\n"
    gate = class_of(recording, "Gate")
    assert gate.module == "pkg.model"
    (signature,) = gate.configurations[0].signatures
    assert signature.text == "(f32[32, 64], extras: {masks: (b1[32, 64], 3)})"
    assert signature.output == "{out: f32[32, 64], more: (f32[32, 64], None)}"


@pytest.mark.programs
def test_path_and_environment_are_the_programs_own(record):
    show = "import os, sys, torch; print([os.environ.get(n) for n in sys.argv[1:]], 'start' in ''.join(sys.path))"
    names = ["KERNEL_ASSISTANT_SCAN", "KERNEL_ASSISTANT_SCAN_CHILDREN", "PYTHONPATH"]
    done, _ = record("-c", show, *names)
    assert done.stdout == f"{[None, None, os.environ['PYTHONPATH']]} False\n"


@pytest.mark.programs
def test_the_hidden_sitecustomize_runs(write, record, monkeypatch):
    path = write("site/sitecustomize.py", "import builtins; builtins.seen = 'mine'\n")
    monkeypatch.setenv("PYTHONPATH", f"{path.parent}:{os.environ['PYTHONPATH']}")
    done, _ = record("-c", "import sys; print(seen, sys.modules['sitecustomize'].__file__)")
    assert done.stdout == f"mine {path}\n"


@pytest.mark.programs
@pytest.mark.slow
@pytest.mark.parametrize(("ending", "wanted"), ENDINGS.items())
def test_whatever_ends_the_program_leaves_what_was_recorded(write, record, ending, wanted):
    code, how = wanted
    path = write("net.py", SCRIPT + f"    net(torch.zeros(4, 64))\n    {ending}\n")
    done, (recording,) = record(path)
    assert (done.returncode, recording.ended) == (code, how)
    assert class_of(recording, "Net").calls == 4


@pytest.mark.programs
@pytest.mark.slow
def test_a_call_that_raises_is_counted(write, record):
    text = SCRIPT.replace("for rows in (8, 8, 16):", "for rows in (8, -1):")
    done, (recording,) = record(write("net.py", text))
    assert done.returncode == 1 and "negative dimension" in done.stderr
    failing = SCRIPT.replace("self.eps = eps\n", "self.eps = eps\n        self.left = 2\n")
    failing = failing.replace("        y = x", "        self.left -= 1\n        assert self.left\n        y = x")
    done, (recording,) = record(write("net.py", failing))
    assert done.returncode == 1 and "AssertionError" in done.stderr
    assert class_of(recording, "Net").calls == class_of(recording, "Norm").calls == 2


@pytest.mark.programs
@pytest.mark.slow
def test_gradients_autocast_and_modes_are_told_apart(write, record):
    text = SCRIPT + (
        "    net(torch.randn(8, 64))\n"
        "    net.train()\n"
        "    with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):\n"
        "        net(torch.randn(8, 64))\n"
    )
    _, (recording,) = record(write("net.py", text))
    norm = class_of(recording, "Norm")
    assert set(norm.unserved_seconds) == {"gradient", "autocast"}
    assert {one.training for one in norm.configurations[0].signatures} == {True, False}


@pytest.mark.programs
@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "reason", "calls"),
    [
        ("torch.compile(net, backend='eager', fullgraph=True)(x)", "torch.compile", 4),
        ("net.compile(backend='eager'); net(x)", "torch.compile", 3),
        # To check the trace, the module runs once as it is.
        ("torch.jit.trace(net, x)(x)", "torch.jit", 5),
        ("torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))(x)", "torch.fx", 4),
        ("torch.func.vmap(net)(x)", "functional transform", 4),
    ],
)
def test_what_is_not_eager_is_passed_by_with_a_note(write, record, call, reason, calls):
    text = SCRIPT + f"    x = torch.randn(8, 64)\n    with torch.no_grad():\n        {call}\n        net(x)\n"
    done, (recording,) = record(write("net.py", text))
    assert done.returncode == 0, done.stderr
    assert recording.skipped[reason] >= 1 and not recording.failure
    inside = {place.rpartition("/")[2] for place in recording.compiled if "/net.py:" in place}
    assert inside == ({"net.py:Net", "net.py:Norm"} if reason == "torch.compile" else set())
    assert class_of(recording, "Net").calls == calls


@pytest.mark.programs
@pytest.mark.slow
def test_classes_inside_a_scripted_module_are_known(write, record):
    text = SCRIPT.replace("mask=None, *, scale=1.0", "scale: float = 1.0")
    text = text.replace('return {"out": y} if mask is None else (y, mask)', "return y").replace(')["out"]', ")")
    text = text.replace("Net().eval()", "torch.jit.script(Net().eval())")
    done, (recording,) = record(write("net.py", text))
    assert done.returncode == 0, done.stderr
    assert {place.rpartition("/")[2] for place in recording.scripted} == {"net.py:Net", "net.py:Norm"}
    assert not recording.classes and not recording.compiled and not recording.failure


@pytest.mark.programs
@pytest.mark.slow
def test_torch_compile_makes_the_graphs_that_it_makes_alone(write, record):
    text = SCRIPT.replace("net = Net().eval()", "net = torch.compile(Net().eval(), backend=backend)")
    head = "graphs = []\n\n\ndef backend(graph, inputs):\n    graphs.append(str(graph.code))\n    return graph\n\n\n"
    text = text.replace("if __name__", f"{head}if __name__").replace('    print(f"', '    print(graphs)\n    print(f"')
    path = write("net.py", text)
    alone = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    done, _ = record(path)
    assert done.stdout == alone.stdout and "rsqrt" in alone.stdout


@pytest.mark.programs
@pytest.mark.slow
def test_an_export_and_a_dispatch_mode_go_undisturbed(write, record):
    text = SCRIPT + (
        "    from torch.utils.flop_counter import FlopCounterMode\n"
        "    with FlopCounterMode(display=False) as counter, torch.no_grad():\n"
        "        net(torch.randn(8, 64))\n"
        "    program = torch.export.export(net, (torch.randn(8, 64),))\n"
        "    print(counter.get_total_flops(), len(program.graph.nodes))\n"
    )
    path = write("net.py", text)
    alone = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    done, (recording,) = record(path)
    assert done.stdout == alone.stdout
    assert "dispatch mode" in recording.skipped


@pytest.mark.programs
@pytest.mark.slow
def test_forked_and_started_children_are_not_part_of_it_unless_asked_for(write, record):
    path = write(
        "net.py",
        # A forked process must not use the threads of its parent, which it has not got.
        SCRIPT.replace("torch.manual_seed(3)", "torch.set_num_threads(1)") + "    import os, subprocess, sys\n"
        "    if os.fork() == 0:\n        net(torch.zeros(1, 64))\n        os._exit(0)\n    os.wait()\n"
        "    subprocess.run([sys.executable, 'child.py'], check=True)\n",
    )
    write("child.py", SCRIPT)
    _, recordings = record(path)
    assert [class_of(one, "Net").calls for one in recordings] == [3]
    _, recordings = record(path, children=True)
    assert [class_of(one, "Net").calls for one in recordings] == [3, 3]


def test_inputs_that_do_not_pickle_are_tried_once_and_noted(write, record):
    path = write(
        "odd.py",
        "import torch\n\n\nclass Odd:\n    def __reduce__(self):\n"
        "        print('asked')\n        raise ValueError('not me')\n\n\n"
        "class Add(torch.nn.Module):\n    def forward(self, x, odd):\n        return x + 1\n\n\n"
        "for _ in range(5):\n    Add()(torch.ones(2), Odd())\n",
    )
    done, (recording,) = record(path)
    (configuration,) = class_of(recording, "Add").configurations
    assert done.stdout.count("asked") == 1 and class_of(recording, "Add").calls == 5
    assert configuration.notes == ("inputs-0.pt: ValueError: not me",) and configuration.signatures[0].sample == -1


@pytest.mark.programs
@pytest.mark.slow
def test_large_inputs_are_described_and_views_kept_without_their_storage(write, record):
    path = write(
        "big.py",
        "import torch\n\n\nclass Add(torch.nn.Module):\n    def forward(self, x, y):\n        return x + y\n\n\n"
        "big = torch.rand(6_000_000)\nAdd()(big, big[:1])\nAdd()(big[:2], big[2:4])\n",
    )
    _, (recording,) = record(path)
    first, second = class_of(recording, "Add").configurations[0].signatures
    assert first.sample >= 0 and not first.exact and second.exact
    folder = next(path.parent.parent.glob("recordings*/*/c0v0"))
    assert sum(file.stat().st_size for file in folder.iterdir()) < 20_000


CAPTURE = """
import torch

net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)).cuda().eval()
x = torch.randn(8, 64, device="cuda")
with torch.no_grad():
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            net(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = net(x)
    graph.replay()
    print(torch.allclose(y, net(x)))
"""


@pytest.mark.gpu
def test_on_cuda_events_tell_the_time_and_captured_calls_pass_by(write, record):
    done, (recording,) = record(write("capture.py", CAPTURE))
    assert done.stdout == "True\n", done.stderr
    assert recording.clock == "cuda events" and recording.device != "cpu" and not recording.failure
    assert recording.skipped == {"CUDA graph capture": 3}
    linear, norm = class_of(recording, "Linear"), class_of(recording, "LayerNorm")
    assert linear.calls == norm.calls == 4 and linear.share_seconds > 0 and norm.share_seconds > 0


ASYNCHRONOUS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(2048, 2048) for _ in range(4))

    def forward(self, x):
        for one in self.inner:
            x = torch.tanh(one(x))
        return x

net, x = Net().cuda().eval(), torch.randn(8192, 2048, device="cuda")
with torch.no_grad():
    for _ in range(12):
        net(x)
torch.cuda.synchronize()
"""


@pytest.mark.gpu
@pytest.mark.parametrize("outermost", [False, True])
def test_on_cuda_a_loop_ends_when_the_device_has_finished_it(write, record, outermost):
    """The program submits its calls in less time than the device needs for them."""
    done, (recording,) = record(write("net.py", ASYNCHRONOUS), outermost=outermost)
    assert done.returncode == 0 and not recording.failure, (done.stderr, recording.failure)
    assert (recording.loop, recording.rounds, recording.clock) == ("Net", 11, "cuda events")
    net = class_of(recording, "Net")
    assert net.inclusive_seconds > 0
    assert net.inclusive_seconds <= recording.loop_seconds + recording.overhead_seconds + 1e-4
    assert recording.loop_seconds <= recording.calls_seconds
