from __future__ import annotations

import os
import sys
import venv
from pathlib import Path

import pytest

from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.source import find_interpreter


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which no Python has torch: our interpreter is an environment without it, and PATH is empty."""
    environment = make_environment(tmp_path / "ours")
    monkeypatch.setattr(sys, "executable", str(environment / "bin" / "python"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    return tmp_path


def make_environment(folder: Path, torch: str = "") -> Path:
    """A virtual environment without pip. With `torch`, its metadata says that this version is installed."""
    venv.create(folder, symlinks=True)
    if torch:
        (site,) = folder.glob("lib/python3*/site-packages")
        metadata = site / f"torch-{torch}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
    return folder


def test_our_own_interpreter(tmp_path: Path) -> None:
    found = find_interpreter(tmp_path / "net.py", sys.executable)
    assert found.path == sys.executable and found.version == sys.version.split()[0]
    assert found.torch_version is not None and found.origin == "--python"


def test_order(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = bare / "project" / "src" / "net.py"
    file.parent.mkdir(parents=True)
    path = make_environment(bare / "onpath", "2.9.1")
    monkeypatch.setenv("PATH", str(path / "bin"))
    assert find_interpreter(file).origin == "PATH"
    monkeypatch.setenv("CONDA_PREFIX", str(make_environment(bare / "conda", "2.10.0")))
    assert find_interpreter(file).torch_version == "2.10.0"
    monkeypatch.setenv("VIRTUAL_ENV", str(make_environment(bare / "active", "2.11.0+cu130")))
    assert find_interpreter(file).origin == "VIRTUAL_ENV"
    make_environment(bare / "project" / "venv", "2.12.0")
    assert find_interpreter(file).origin == f"venv of {bare / 'project'}"
    make_environment(bare / "project" / "src" / ".venv")
    assert find_interpreter(file).torch_version == "2.12.0"  # the nearest one has no torch
    assert find_interpreter(file, str(bare / "conda")).torch_version == "2.10.0"


def test_torch_that_arrives_later_is_seen(bare: Path) -> None:
    make_environment(bare / ".venv")
    with pytest.raises(MissingError, match="no Python with torch"):
        find_interpreter(bare / "net.py")
    (site,) = (bare / ".venv").glob("lib/python3*/site-packages")
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text("__version__ = '2.13.0a0+git1'\n")
    (site / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
    os.utime(site, ns=(1, site.stat().st_mtime_ns + 1))
    assert find_interpreter(bare / "net.py").torch_version == "2.13.0a0+git1"


def test_too_old(bare: Path) -> None:
    make_environment(bare / ".venv", "2.8.0")
    with pytest.raises(MissingError, match=r"torch 2\.8\.0, 2\.9 or newer") as caught:
        find_interpreter(bare / "net.py")
    assert "--python" in caught.value.next_step


def test_explicit_without_torch(bare: Path) -> None:
    with pytest.raises(MissingError, match="has no torch"):
        find_interpreter(bare / "net.py", str(bare / "ours"))


@pytest.mark.parametrize("explicit", ["/no/such/python", "no-such-python", "/dev/null", "/"])
def test_explicit_that_is_no_python(bare: Path, explicit: str) -> None:
    with pytest.raises(UsageError, match="not a Python interpreter"):
        find_interpreter(bare / "net.py", explicit)


def test_a_strangers_environment_does_not_run(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_environment(bare / ".venv", "2.13.0")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    owner = (bare / ".venv").stat().st_uid
    if owner == 0:
        os.chown(bare / ".venv", 54321, -1)
    with pytest.raises(MissingError, match="no Python with torch"):
        find_interpreter(bare / "net.py")
