"""Where NVRTC is, and how a unit is built with it."""

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
    """Of nvcc's own release. `include` has the toolkit's headers."""

    library: str
    builtins: str
    include: str

    @property
    def read_only(self) -> tuple[str, ...]:
        """What has to be seen in the sandbox."""
        return (self.library, self.builtins, str(BUILD), str(HEADERS))

    def argv(self, unit: str, output: str, arch: str, nvcc: tuple[str, ...]) -> tuple[str, ...]:
        """The command that builds `unit` in its folder, in which `nvcc` stands for units that NVRTC does not take."""
        options = (*NVRTC_FLAGS, f"-arch={arch}", "-I.", f"-I{HEADERS}", f"-I{self.include}")
        return (PYTHON, "-I", "-S", str(BUILD), self.library, self.builtins, unit, output, *options, "--", *nvcc)


@lru_cache(maxsize=8)
def find_nvrtc(nvcc: str, version: str) -> Nvrtc | None:
    """That of the toolkit, else that of a wheel beside this program (torch brings one), None where there is none of the
    same release; `version` is what `nvcc --version` says."""
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
