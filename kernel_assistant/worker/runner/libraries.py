"""The libraries cuBLASLt and cuDNN in this process: finds their files, opens one handle of each, and chooses one
algorithm for each operation and its sizes.

Standard library only. See docs/libraries.md.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Callable
from typing import NamedTuple, Protocol

from .choosing import Algorithm, Words, choose
from .cuda_driver import CudaError, Driver, Events
from .plan import DTYPE_BYTES, BoundLibraryCall, LibraryError

#: File names by library; the number behind ".so." is the major version.
_FILES = {
    "cublaslt": re.compile(r"libcublasLt\.so\.\d+$"),
    "cudnn": re.compile(r"libcudnn\.so\.\d+$"),
    "nvrtc": re.compile(r"libnvrtc\.so\.\d+$"),
}
_PACKAGES = {"cublaslt": "nvidia-cublas", "cudnn": "nvidia-cudnn-cu13 or nvidia-cudnn-cu12"}

Run = Callable[[Words, int], None]


class LibraryMissing(LibraryError):
    """The file of a library was not found."""


class ChosenAlgorithm(NamedTuple):
    """The algorithm of a library launch: `run(words, stream)`, which raises CudaError, the bytes of its workspace, and
    its name."""

    run: Run
    workspace: int
    name: str


class Library(Protocol):
    """One opened library on one device."""

    def ways(self, launch: BoundLibraryCall, tf32: bool, deterministic: bool) -> list[Algorithm]:
        """Algorithms for a launch: reproducible ones first, among equals the likely best first. With `deterministic`,
        only reproducible ones if there are any. Raises LibraryError if the library cannot do the operation."""

    def name_of(self, status: int) -> str:
        """The library's own name for a status."""


class Libraries:
    """The libraries on one device, opened when a launch first needs them. The device's context must be current. `flags`
    are PyTorch's settings, as `applied/precision.py` reads them."""

    def __init__(self, driver: Driver, paths: dict[str, str], flags: dict[str, bool]) -> None:
        self.driver, self.paths, self.flags = driver, paths, flags
        self._events: Events | None = None
        self._opened: dict[str, Library] = {}
        self._chosen: dict[tuple[object, ...], ChosenAlgorithm] = {}

    def bind(self, launch: BoundLibraryCall) -> ChosenAlgorithm:
        """The algorithm for a launch, the same for equal operations. Raises LibraryError or CudaError."""
        name = launch.library.partition(".")[0]
        compute = launch.settings["compute"]
        tf32 = launch.dtype == "f32" and (compute == "tf32" or (compute == "flags" and self.flags[name]))
        deterministic = self.flags.get("deterministic", False)
        key = (*launch.key, tf32, deterministic)
        if key not in self._chosen:
            library = self._open(name)
            self._chosen[key] = self._choose(library, launch, library.ways(launch, tf32, deterministic))
        return self._chosen[key]

    def _choose(self, library: Library, launch: BoundLibraryCall, ways: list[Algorithm]) -> ChosenAlgorithm:
        if self._events is None:
            self._events = Events(self.driver)
        spans = [launch.spans[field] * DTYPE_BYTES[launch.dtype] for field in launch.fields]
        way = choose(self.driver, self._events, ways, spans) if ways else None
        if way is None:
            raise LibraryError(f"{launch.library} has no algorithm for {launch.symbol} ({launch.sizes})")
        attempt, name_of = way.attempt, library.name_of

        def run(words: Words, stream: int) -> None:
            status = attempt(words, stream)
            if status:
                raise CudaError(launch.library, status, name_of(status))

        return ChosenAlgorithm(run, way.workspace, way.name)

    def _open(self, name: str) -> Library:
        if name not in self._opened:
            if name not in self.paths:
                raise LibraryMissing(
                    f"lib{name} was not found beside PyTorch: install {_PACKAGES[name]}, or a PyTorch that brings it"
                )
            from .cublaslt import CublasLt
            from .cudnn import CudnnConvolutions

            try:
                opened = (CublasLt if name == "cublaslt" else CudnnConvolutions)(self.paths)
            except (OSError, AttributeError) as error:
                raise LibraryMissing(f"{self.paths[name]} cannot be loaded: {error}") from error
            self._opened[name] = opened
        return self._opened[name]


def find_libraries() -> dict[str, str]:
    """The path of each library: the file that this process has mapped (PyTorch's own), else the one in `nvidia/*/lib`
    on sys.path. Libraries that are not found are left out."""
    beside = [
        path for folder in sys.path for path in sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib", "*")))
    ]
    paths: dict[str, str] = {}
    for path in [*_mapped(), *beside]:
        for name, pattern in _FILES.items():
            if pattern.match(os.path.basename(path)):
                paths.setdefault(name, path)
    return paths


def library_folders() -> list[str]:
    """Folders of the files that `find_libraries` finds; a sandbox has to make them visible."""
    return sorted({os.path.dirname(path) for path in find_libraries().values()})


def _mapped() -> list[str]:
    if not os.path.exists("/proc/self/maps"):
        return []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return sorted({line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")})
