"""How the tests are run: what a test that kills its process costs, and that a failed test gets a second try alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.planted import DEFECTS
from tests.run import FAILED, ROOT, again

CONFTEST = """
from tests.common.scheduling import GroupScheduling


def pytest_xdist_make_scheduler(config, log):
    return GroupScheduling(config, log)
"""

#: Four files: a process dies in the first, a middle and the last test of a file, and in a file's only test.
FILES = {
    "first": ("dies", "fine", "fine"),
    "middle": ("fine", "dies", "fine", "fine"),
    "last": ("fine", "fine", "dies"),
    "only": ("dies",),
    "none": ("fine",) * 5,
}
BODIES = {"dies": "import os; os._exit(3)", "fine": "pass"}


def run(folder, *flags):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "xdist", "--rootdir", str(folder), *flags, str(folder)),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("processes", [1, 3])
def test_a_test_that_kills_its_process_fails_and_all_others_run(tmp_path, processes):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, tests in FILES.items():
        text = "".join(f"def test_{n}_{kind}():\n    {BODIES[kind]}\n\n\n" for n, kind in enumerate(tests))
        (tmp_path / f"test_{name}.py").write_text(text)
    flags = ("--numprocesses", str(processes), "--dist", "loadscope", "--max-worker-restart", "100", "-rf")
    done = run(tmp_path, *flags, "-p", "no:cacheprovider")
    assert done.returncode == FAILED
    assert "4 failed, 12 passed" in done.stdout, done.stdout
    died = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED")}
    assert died == {
        "test_first.py::test_0_dies",
        "test_middle.py::test_1_dies",
        "test_last.py::test_2_dies",
        "test_only.py::test_0_dies",
    }


def test_what_fails_once_is_named_and_what_fails_twice_fails(tmp_path, capsys, monkeypatch):
    """The second run of `test_once` finds the file that the first left."""
    (tmp_path / "test_some.py").write_text(
        "from pathlib import Path\n\n\n"
        "def test_once():\n"
        "    mark = Path(__file__).with_name('mark')\n"
        "    tried = mark.exists()\n"
        "    mark.touch()\n"
        "    assert tried\n\n\n"
        "def test_never():\n"
        "    assert 1 == 2, 'these are the words'\n"
    )
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    flags = ("-o", f"cache_dir={tmp_path}/results/cache", "-o", "addopts=")
    assert run(tmp_path, *flags).returncode == FAILED
    assert again(tmp_path / "results", tmp_path) == FAILED
    said = capsys.readouterr().out
    assert "flaky: test_some.py::test_once" in said and "FAILED TWICE: test_some.py::test_never" in said
    assert "these are the words" in said
    (tmp_path / "mark").unlink()
    assert run(tmp_path, *flags, "-k", "once", "--cache-clear").returncode == FAILED
    assert again(tmp_path / "results", tmp_path) == 0


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.what)
def test_each_defect_of_the_bench_can_still_be_planted(defect):
    """Its text moves with the code: the bench stops at one that it does not find."""
    assert (ROOT / defect.file).read_text(encoding="utf-8").count(defect.right) == 1
    assert (ROOT / defect.tests).exists()
