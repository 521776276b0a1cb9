"""Finds the files of cuBLASLt and cuDNN, opens one handle of each in this process, and chooses one algorithm for each
operation and its sizes.

Standard library only. See docs/libraries.md."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Callable
from typing import NamedTuple, Protocol

from .cuda_driver import CudaError, Driver, Events
from .operations.choosing import Algorithm, Wanted, Words, choose
from .operations.kept_algorithms import KeptAlgorithms, key_of
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
    """The file of cuBLASLt or cuDNN was not found, or cannot be loaded."""


class ChosenAlgorithm(NamedTuple):
    """The algorithm of a library launch. `run(words, stream)` runs it on the addresses `words` and raises CudaError if
    that fails; `workspace` is the size of its workspace in bytes."""

    run: Run
    workspace: int
    name: str


class Library(Protocol):
    """cuBLASLt or cuDNN, opened on one device."""

    def version(self) -> str:
        """Returns the library's name and version if the algorithms chosen for it are to be kept on disk; else ""
        (cuBLASLt)."""

    def ways(self, launch: BoundLibraryCall, tf32: bool, deterministic: bool, wanted: Wanted) -> list[Algorithm]:
        """Returns algorithms for a launch, as `wanted` selects them: reproducible ones first, and within each group the
        likely fastest first. With `deterministic`, returns only reproducible ones, if there are any. Raises
        LibraryError if the library cannot do the operation."""

    def name_of(self, status: int) -> str:
        """Returns the library's own name for a status code."""


class Libraries:
    """cuBLASLt and cuDNN on one device, opened when a launch first needs them. The device's context must be current.
    `paths` are their files by name. `flags` are PyTorch's settings, as `applied/precision.py` reads them. `kept` has
    algorithms that were chosen earlier. While `quick` is set, a launch gets the fastest of a few algorithms, not of
    all."""

    def __init__(
        self, driver: Driver, paths: dict[str, str], flags: dict[str, bool], kept: KeptAlgorithms | None = None
    ) -> None:
        self.driver, self.paths, self.flags = driver, paths, flags
        self.kept, self.quick = kept or KeptAlgorithms(), False
        self._events: Events | None = None
        self._opened: dict[str, Library] = {}
        self._chosen: dict[tuple[object, ...], ChosenAlgorithm] = {}

    def bind(self, launch: BoundLibraryCall) -> ChosenAlgorithm:
        """Returns the algorithm for a launch, the same for equal operations. Raises LibraryError or CudaError."""
        name = launch.library.partition(".")[0]
        compute = launch.settings["compute"]
        tf32 = launch.dtype == "f32" and (compute == "tf32" or (compute == "flags" and self.flags[name]))
        deterministic = self.flags.get("deterministic", False)
        key = (*launch.key, tf32, deterministic)
        chosen = self._chosen.get(key) or (self._chosen.get((*key, "quick")) if self.quick else None)
        if chosen is None:
            chosen = self._search(self._open(name), launch, tf32, deterministic, key)
            self._chosen[(*key, "quick") if self.quick else key] = chosen
        return chosen

    def _search(
        self, library: Library, launch: BoundLibraryCall, tf32: bool, deterministic: bool, key: tuple[object, ...]
    ) -> ChosenAlgorithm:
        """Returns the algorithm that was kept for a launch earlier; if there is none, the fastest of those that the
        library offers. `key` identifies the operation. Raises LibraryError if the library has none."""
        version = library.version()
        operation = key_of(version, self.driver.device_name, key) if version else ""
        for name in self.kept.known(operation):
            ways = library.ways(launch, tf32, deterministic, Wanted(1, name))
            way, _ = self._fastest(launch, [way for way in ways if way.name == name])
            if way is not None:
                return _chosen(library, launch, way)
        for wanted in (Wanted(plans=1), Wanted()) if self.quick else (Wanted(),):
            ways = library.ways(launch, tf32, deterministic, wanted)
            way, timed = self._fastest(launch, ways)
            if way is not None:
                if operation and timed and len(ways) > 1 and not self.quick:
                    self.kept.add({operation: way.name})
                return _chosen(library, launch, way)
        raise LibraryError(f"{launch.library} has no algorithm for {launch.symbol} ({launch.sizes})")

    def _fastest(self, launch: BoundLibraryCall, ways: list[Algorithm]) -> tuple[Algorithm | None, bool]:
        if self._events is None:
            self._events = Events(self.driver)
        spans = [launch.spans[field] * DTYPE_BYTES[launch.dtype] for field in launch.fields]
        return choose(self.driver, self._events, ways, spans) if ways else (None, False)

    def _open(self, name: str) -> Library:
        if name not in self._opened:
            if name not in self.paths:
                raise LibraryMissing(
                    f"lib{name} was not found beside PyTorch: install {_PACKAGES[name]}, or a PyTorch that brings it"
                )
            from .operations.cublaslt import CublasLt
            from .operations.cudnn import CudnnConvolutions

            try:
                opened = (CublasLt if name == "cublaslt" else CudnnConvolutions)(self.paths)
            except (OSError, AttributeError) as error:
                raise LibraryMissing(f"{self.paths[name]} cannot be loaded: {error}") from error
            self._opened[name] = opened
        return self._opened[name]


def _chosen(library: Library, launch: BoundLibraryCall, way: Algorithm) -> ChosenAlgorithm:
    attempt, name_of, operation = way.attempt, library.name_of, launch.library

    def run(words: Words, stream: int) -> None:
        status = attempt(words, stream)
        if status:
            raise CudaError(operation, status, name_of(status))

    return ChosenAlgorithm(run, way.workspace, way.name)


def find_libraries() -> dict[str, str]:
    """Returns the path of each library ("cublaslt", "cudnn", "nvrtc"): of the file that this process has mapped
    (PyTorch's own), else of the one in `nvidia/*/lib` on sys.path. Libraries that are not found are left out."""
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
    """Returns the folders of the files that `find_libraries` finds, sorted; a sandbox has to make them visible."""
    return sorted({os.path.dirname(path) for path in find_libraries().values()})


def _mapped() -> list[str]:
    if not os.path.exists("/proc/self/maps"):
        return []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return sorted({line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")})
