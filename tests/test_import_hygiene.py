"""Tests which packages are loaded: no front end, host or generator loads torch, and starting the command line loads
little.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "kernel_assistant": ROOT / "kernel_assistant",
    "kernel_assistant_lsp": ROOT / "lsp/kernel_assistant_lsp",
    "kernel_assistant_tui": ROOT / "tui/kernel_assistant_tui",
}
PROBE = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def modules_outside_the_worker() -> dict[str, list[str]]:
    """Full module names by layer (`kernel_assistant.session`, …); front end packages are a layer each."""
    layers: dict[str, list[str]] = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            # serving/convert is a program of its own, started for what needs numpy.
            if parts[0] in ("worker", "skills") or parts[:2] == ("serving", "convert") or parts[-1] == "__main__":
                continue
            name = ".".join((package, *parts)).removesuffix(".__init__")
            layer = ".".join(name.split(".")[:2]) if package == "kernel_assistant" else package
            layers.setdefault(layer, []).append(name)
    return layers


def loaded_by(*names: str, python_path: str) -> set[str]:
    """Top-level names in `sys.modules` of a fresh interpreter after importing `names`."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *names],
        env={**os.environ, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_probe_sees_torch(python_path: str) -> None:
    assert "torch" in loaded_by("torch", python_path=python_path)


LAYERS = modules_outside_the_worker()


def test_every_layer_is_looked_at() -> None:
    names = {name.removeprefix("kernel_assistant.") for name in LAYERS}
    assert names >= {"agent", "apply", "cli", "environment", "generator", "policy", "sandbox", "session", "source"}


@pytest.mark.parametrize("layer", LAYERS)
def test_layer_loads_no_torch(layer: str, python_path: str) -> None:
    assert not loaded_by(*LAYERS[layer], python_path=python_path) & {"torch", "numpy"}


def test_processes_beside_the_stages_of_training_load_no_torch(python_path: str) -> None:
    """The pipeline's exists as long as all stages, and many make conversations."""
    names = ("pipeline.command", "stream", "held_out", "synth", "synth.answers")
    loaded = loaded_by(*(f"kernel_assistant_training.{name}" for name in names), python_path=python_path)
    assert "torch" not in loaded


def test_nothing_between_commands_and_jobs_loads_rich(python_path: str) -> None:
    names = [name for name in LAYERS["kernel_assistant.cli"] if name.count(".") < 3]
    assert "rich" not in loaded_by(*names, *LAYERS["kernel_assistant.session"], python_path=python_path)


def test_import_of_the_package_loads_no_dependency(python_path: str) -> None:
    assert not loaded_by("kernel_assistant", python_path=python_path) & {"click", "rich", "psutil", "pynvml"}
