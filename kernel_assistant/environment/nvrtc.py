"""Finds NVRTC, NVIDIA's compiler library, and makes the command that compiles a source file with it."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kernel_assistant.sandbox.launcher import PYTHON
from kernel_assistant.targets.cuda import NVRTC_FLAGS

BUILD = Path(__file__).with_name("nvrtc_build.py")
HEADERS = Path(__file__).with_name("nvrtc_headers")


@dataclass(frozen=True)
class Nvrtc:
    """The paths of an NVRTC library of the same release as nvcc, and of its library of built-ins. `include` is the
    folder of the toolkit's headers."""

    library: str
    builtins: str
    include: str

    @property
    def read_only(self) -> tuple[str, ...]:
        """The paths to which the sandboxed compiler needs read access."""
        return (self.library, self.builtins, str(BUILD), str(HEADERS))

    def argv(self, unit: str, output: str, arch: str, nvcc: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the command that compiles the file `unit` to `output` in the current folder, for an architecture such
        as `sm_90`. If NVRTC fails, the command runs the command `nvcc` instead."""
        options = (*NVRTC_FLAGS, f"-arch={arch}", "-I.", f"-I{HEADERS}", f"-I{self.include}")
        return (PYTHON, "-I", "-S", str(BUILD), self.library, self.builtins, unit, output, *options, "--", *nvcc)


@lru_cache(maxsize=8)
def find_nvrtc(nvcc: str, version: str) -> Nvrtc | None:
    """Returns the toolkit's NVRTC, or that of an installed Python package (torch installs one); None if neither has the
    same release as nvcc. `version` is the output of `nvcc --version`."""
    release = re.search(r"release (\d+)\.(\d+)", version)
    toolkit = Path(os.path.realpath(nvcc)).parent.parent
    include = toolkit / "include"
    if release is None or not (include / "cuda_fp16.h").is_file():
        return None
    wheels = [Path(path, "nvidia", name, "lib") for path in sys.path for name in (f"cu{release[1]}", "cuda_nvrtc")]
    for folder in (toolkit / "lib64", *wheels):
        library = folder / f"libnvrtc.so.{release[1]}"
        builtins = folder / f"libnvrtc-builtins.so.{release[1]}.{release[2]}"
        if library.is_file() and builtins.is_file():
            return Nvrtc(os.path.realpath(library), os.path.realpath(builtins), os.path.realpath(include))
    return None
