"""Tests that every failure gives one line with the cause, one line with the next step, and the right exit code, but no
traceback.
"""

from __future__ import annotations

import sys

import pytest

from tests.common.commands import run_here


@pytest.fixture
def home(home):
    """A folder with files that are wrong, and one that is not."""
    (home / "syntax.py").write_text("def f(:\n")
    (home / "empty.py").write_text("x = 1\n")
    (home / "good.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return x + 1\n"
        "def get_inputs(): return [torch.randn(4)]\n"
    )
    (home / "workspace").mkdir()
    (home / "workspace" / "plan.json").write_text('{"target": "cpu"}')
    (home / "plain").mkdir()
    return home


CASES = [
    (("bogus",), 2, "No such command"),
    (("optimize",), 2, "Missing argument"),
    (("optimize", "missing.py"), 2, "does not exist"),
    (("optimize", "syntax.py"), 2, "syntax.py"),
    (("optimize", "empty.py"), 2, "no torch.nn.Module"),
    (("optimize", "good.py:Other"), 2, "no torch.nn.Module class Other"),
    (("optimize", "good.py", "--budget", "soon"), 2, "budget"),
    (("optimize", "good.py", "--target", "tpu"), 2, "tpu"),
    (("optimize", "good.py", "--python", "/bin/true"), 2, "not a Python"),
    (("optimize", "good.py", "--policy", "model", "--model", "nowhere.gguf"), 3, "no model"),
    (("optimize", "good.py", "--money", "1", "--policy", "auto", "--endpoint", "http://a/v1"), 2, "needs the price"),
    (("optimize", "good.py", "--money", "none"), 2, "money"),
    (("optimize", "good.py", "--tokens", "0"), 2, "tokens"),
    (("models", "add", "x", "http://127.0.0.1:9/v1", "--price-in", "1"), 2, "a price is two numbers"),
    (("verify", "nowhere"), 2, "cannot be read"),
    (("verify", "plain"), 2, "neither plan.json nor model_new.py"),
    (("verify", "workspace"), 2, "Plan"),
    (("profile", "good.py"), 2, "no class ModelNew"),
    (("apply", "good.py"), 2, "no job"),
    (("apply", "12"), 2, "no job"),
    (("undo", "good.py"), 2, "no kernels"),
    (("undo", "12"), 2, "no job"),
    (("undo",), 2, "nothing is applied"),
    (("attach", "12"), 2, "no job"),
    (("cancel", "twelve"), 2, "no job"),
    (("show", "12"), 2, "no job"),
    (("history", "--limit", "0"), 2, "limit"),
]


def test_a_file_with_several_classes_gets_a_command_for_each(home):
    forward = "(torch.nn.Module):\n    def forward(self, x): return x + 1\n"
    (home / "two.py").write_text(f"import torch\nclass A{forward}class B{forward}")
    for text, command in (("", "draft"), ("def get_inputs(): return [torch.randn(4)]\n", "optimize")):
        (home / "two.py").write_text((home / "two.py").read_text() + text)
        done = run_here("optimize", "two.py")
        assert (done.returncode, done.stdout) == (2, "")
        lines = done.stderr.splitlines()
        assert lines[:2] == [f"kernel-assistant {command} two.py:{name}" for name in "AB"]
        assert "holds several modules" in lines[2] and lines[3].startswith("next: ")


@pytest.mark.parametrize(("arguments", "code", "words"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_one_line_each_and_the_code(home, arguments, code, words):
    done = run_here(*arguments)
    assert done.returncode == code
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and lines[0].startswith("error: ") and lines[1].startswith("next: ")
    assert words in lines[0]


def test_a_state_folder_that_cannot_be_written_is_our_failure(home):
    (home / "file").write_text("")
    done = run_here("optimize", "good.py", KERNEL_ASSISTANT_STATE_DIR=str(home / "file" / "below"))
    assert done.returncode == 4
    assert "below" in done.stderr and len(done.stderr.splitlines()) == 2


def test_a_project_cannot_choose_what_is_started(home):
    (home / "pyproject.toml").write_text(
        '[tool.kernel-assistant]\npython = "/bin/true"\nsandbox = "none"\nstate_dir = "/tmp/elsewhere"\n'
    )
    done = run_here("optimize", "good.py", "--policy", "model", "--model", "nowhere.gguf")
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 3
    assert all(any(f"'{name}'" in line for line in warnings) for name in ("python", "sandbox", "state_dir"))
    # What it may set counts.
    assert done.returncode == 3 and "no model" in done.stderr


def test_a_class_whose_kernels_could_never_run_is_said_so_before_any_are_looked_for(home):
    (home / "hooked.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.out = torch.nn.Tanh()\n        self.out.register_forward_hook(lambda *_: None)\n"
        "    def forward(self, x): return self.out(x)\n"
        "def get_inputs(): return [torch.randn(64, 64)]\n"
    )
    done = run_here("optimize", "hooked.py", "--target", "cpu", "--python", sys.executable)
    assert done.returncode == 2 and "tried" not in done.stdout + done.stderr
    error, following = done.stderr.splitlines()[-2:]
    why = "its child out has hooks, which kernels would not call"
    assert error == f"error: kernels would never run in place of Net: {why}"
    assert following == "next: optimize a class inside it, or change the class"


SCRIPTED = """
import torch

class Act(torch.nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * torch.tanh(x)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act = Act()
    def forward(self, x):
        return self.act(x) + 1

def get_inputs():
    return [torch.randn(64, 64)]

if __name__ == "__main__":
    net = torch.jit.script(Net())
    net(torch.randn(64, 64))
"""


@pytest.mark.programs
def test_what_runs_inside_a_scripted_module_alone_is_said_so_before_any_kernels_are_looked_for(home):
    """The file names such a module first, which need not be the whole program; then a scan of the program does."""
    (home / "net.py").write_text(SCRIPTED)
    optimize = ["optimize", "net.py:Act", "--target", "cpu", "--python", sys.executable]
    done = run_here(*optimize, "--budget", "1s", "--no-free-wins", "--policy", "generator")
    assert done.returncode == 0, done.stderr
    assert (
        "net.py makes Act for Net, which it gives to torch.jit.script: kernels never run there, since it calls no "
        "Python; they run once Net is called as it is, or compiled by torch.compile"
    ) in done.stderr.replace("\n", " ")
    # All of it is scripted, so that there is nothing else to tell.
    assert run_here("scan", "--", sys.executable, "net.py").returncode == 2
    done = run_here(*optimize)
    assert done.returncode == 2 and "tried" not in done.stdout + done.stderr
    error, following = done.stderr.splitlines()[-2:]
    assert error == (
        "error: kernels would never run in place of Act: the last scan saw your program run it inside torch.jit.script "
        "alone, which calls no Python"
    )
    assert following.startswith("next: leave torch.jit.script out of the program")
