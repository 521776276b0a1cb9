"""Every failure is one line of cause, one of what to do, and the right exit code; never a traceback."""

from __future__ import annotations

import pytest


def write(home):
    (home / "syntax.py").write_text("def f(:\n")
    (home / "empty.py").write_text("x = 1\n")
    (home / "good.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return x + 1\n"
        "def get_inputs(): return [torch.randn(4)]\n"
    )
    (home / "workspace").mkdir()
    (home / "workspace" / "plan.json").write_text('{"target": "cpu"}')
    (home / "plain").mkdir()


CASES = [
    (("bogus",), 2, "No such command"),
    (("optimize",), 2, "Missing argument"),
    (("optimize", "missing.py"), 2, "does not exist"),
    (("optimize", "syntax.py"), 2, "syntax.py"),
    (("optimize", "empty.py"), 2, "no torch.nn.Module"),
    (("optimize", "good.py:Other"), 2, "no torch.nn.Module class Other"),
    (("optimize", "good.py", "--budget", "soon"), 2, "budget"),
    (("optimize", "good.py", "--budget", "-3"), 2, "budget"),
    (("optimize", "good.py", "--target", "tpu"), 2, "tpu"),
    (("optimize", "good.py", "--numerics", "loose"), 2, "loose"),
    (("optimize", "good.py", "--python", "/bin/true"), 2, "not a Python"),
    (("optimize", "good.py", "--policy", "model", "--model", "nowhere.gguf"), 3, "no model"),
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


@pytest.mark.parametrize(("arguments", "code", "words"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_one_line_each_and_the_code(run, home, arguments, code, words):
    write(home)
    done = run(*arguments)
    assert done.returncode == code
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and lines[0].startswith("error: ") and lines[1].startswith("next: ")
    assert words in lines[0]


def test_a_state_folder_that_cannot_be_written_is_our_failure(run, home):
    write(home)
    (home / "file").write_text("")
    done = run("optimize", "good.py", KERNEL_ASSISTANT_STATE_DIR=str(home / "file" / "below"))
    assert done.returncode == 4
    assert "below" in done.stderr and len(done.stderr.splitlines()) == 2


def test_a_project_cannot_choose_what_is_started(run, home):
    write(home)
    (home / "pyproject.toml").write_text(
        '[tool.kernel-assistant]\npython = "/bin/true"\nsandbox = "none"\nstate_dir = "/tmp/elsewhere"\n'
    )
    done = run("optimize", "good.py", "--policy", "model", "--model", "nowhere.gguf")
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert [name for name in ("python", "sandbox", "state_dir") if any(f"'{name}'" in line for line in warnings)] == [
        "python",
        "sandbox",
        "state_dir",
    ]
    assert len(warnings) == 3
    # What it may set counts.
    assert done.returncode == 3 and "no model" in done.stderr
