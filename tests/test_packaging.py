"""The wheel: four packages, the files that are not Python, and no other file in a user's site-packages."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_only_our_packages_are_installed(installed: Path) -> None:
    assert {path.name for path in installed.iterdir()} == {
        "kernel_assistant",
        "kernel_assistant-0.1.0.dist-info",
        "kernel_assistant_lsp",
        "kernel_assistant_training",
        "kernel_assistant_tui",
    }


def test_every_file_of_the_core_is_in_the_wheel(installed: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "kernel_assistant"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    sources = tracked or [str(path.relative_to(ROOT)) for path in ROOT.glob("kernel_assistant/**/*.py")]
    assert "kernel_assistant/worker/boot.py" in sources
    missing = [name for name in sources if (ROOT / name).exists() and not (installed / name).exists()]
    assert missing == []


def test_device_headers_are_in_the_wheel(installed: Path) -> None:
    headers = {path.relative_to(ROOT) for path in (ROOT / "kernel_assistant/skills/include").rglob("*.*")}
    assert headers
    assert all((installed / header).read_bytes() == (ROOT / header).read_bytes() for header in headers)


def test_the_page_that_hints_link_to_is_in_the_wheel(installed: Path) -> None:
    page = installed / "kernel_assistant/docs/diagnostics.md"
    assert page.read_bytes() == (ROOT / "docs/diagnostics.md").read_bytes()


def test_metadata_asks_for_torch_only_as_an_extra(installed: Path) -> None:
    metadata = Parser().parsestr((installed / "kernel_assistant-0.1.0.dist-info/METADATA").read_text())
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(line.partition(">")[0] for line in required) == [
        "click",
        "msgspec",
        "nvidia-ml-py",
        "openai",
        "platformdirs",
        "psutil",
        "pygls<3,",
        "rich",
        "textual<9,",
        "watchdog",
        "xllamacpp",
    ]
    assert metadata["License-Expression"] == "Apache-2.0"


def test_command_of_the_wheel_starts(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernel_assistant", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "optimize" in done.stdout
    script = (installed / "kernel_assistant-0.1.0.dist-info/entry_points.txt").read_text()
    assert "kernel-assistant = kernel_assistant.cli:main" in script
