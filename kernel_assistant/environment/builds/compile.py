"""Compiles candidates (a launch plan and its sources) in the sandbox. Binaries are cached by sources, flags, compiler
and architecture."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kernel_assistant.environment.builds.diagnostics import compiler_diagnostics, kernel_resources
from kernel_assistant.environment.builds.header import plan_header
from kernel_assistant.environment.builds.headers import included
from kernel_assistant.environment.builds.killed import KILLED_TWICE, compiled, was_killed
from kernel_assistant.environment.nvrtc import find_nvrtc
from kernel_assistant.errors import Cancelled, StoreError
from kernel_assistant.records import Candidate, Diagnostic, KernelResources
from kernel_assistant.records.codec import encode, from_builtins, to_builtins
from kernel_assistant.sandbox.contract import Sandbox, SandboxLimits, SandboxSpec
from kernel_assistant.sandbox.paths import compiler_paths, toolkit_paths
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.worker.device_lock import DeviceLock

COMPILE_SECONDS = 120.0


@dataclass(frozen=True)
class Binary:
    """A built candidate. `name` is the file name under which it is stored; `resources` are the registers, shared memory
    and spills of its kernels as the compiler reported them; `cached` says whether it was built before."""

    name: str
    content: bytes
    resources: tuple[KernelResources, ...] = ()
    cached: bool = False


@dataclass(frozen=True)
class CompileFailure:
    diagnostics: tuple[Diagnostic, ...]


class Compiler:
    """Builds candidates for one device. Thread-safe. With a `lock` (the device's lock), no build begins while a
    measurement holds it."""

    def __init__(
        self,
        device: DeviceFacts,
        sandbox: Sandbox,
        cache_dir: Path,
        cancel: threading.Event,
        lock: DeviceLock | None = None,
    ) -> None:
        self.device, self.sandbox, self.cancel = device, sandbox, cancel
        self._lock = lock or DeviceLock()
        self.path = cuda.compiler() if device.target == "cuda" else cpu.compiler()
        self.flags = (*cuda.FLAGS, f"-arch={device.arch}") if device.target == "cuda" else (*cpu.FLAGS, *cpu.LINK_FLAGS)
        self._nvrtc = find_nvrtc(self.path, compiler_version(self.path)) if device.target == "cuda" else None
        self._cache = cache_dir / "builds"

    def build(self, candidate: Candidate) -> Binary | CompileFailure:
        """Returns the binary of a candidate, from the cache if it was built before. Raises StoreError if files cannot
        be written, Cancelled if the user cancels."""
        files = files_of(candidate)
        key = self._key(files)
        try:
            return self._load(key) or self._compile(files, key)
        except OSError as error:
            raise StoreError(
                f"a build could not be kept: {error}", f"make room in {self._cache} and {tempfile.gettempdir()}"
            ) from error

    @property
    def binary_name(self) -> str:
        return f"kernels.{self.device.arch}.{'cubin' if self.device.target == 'cuda' else 'so'}"

    def _key(self, files: dict[str, str]) -> str:
        nvrtc = self._nvrtc.library if self._nvrtc else ""
        identity = [files, self.flags, compiler_version(self.path), nvrtc, self.device.arch, self.device.name]
        return hashlib.sha256(encode(identity)).hexdigest()[:32]

    def _load(self, key: str) -> Binary | None:
        folder = self._cache / key[:2] / key
        try:
            report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
            content = (folder / "binary").read_bytes()
        except (OSError, ValueError):
            return None
        resources = from_builtins(report, tuple[KernelResources, ...])
        return Binary(self.binary_name, content, resources, cached=True)

    def _compile(self, files: dict[str, str], key: str) -> Binary | CompileFailure:
        with tempfile.TemporaryDirectory(prefix="kernel-assistant-build-") as folder:
            unit = lay_out(files, folder, "cu" if self.device.target == "cuda" else "cpp")
            if isinstance(unit, Diagnostic):
                return CompileFailure((unit,))
            with self._lock.shared(self._stop_if_cancelled, first=True):
                done = compiled(self.sandbox, self._spec(folder, unit), timeout=COMPILE_SECONDS, cancel=self.cancel)
            output = (done.stdout + b"\n" + done.stderr).decode(errors="replace")
            built = Path(folder, "binary")
            if done.cancelled:
                raise Cancelled("cancelled while compiling")
            if done.returncode or not built.exists():
                if done.timed_out:
                    return CompileFailure((Diagnostic(message=f"compiling took longer than {COMPILE_SECONDS:.0f} s"),))
                if was_killed(done):
                    return CompileFailure((Diagnostic(message=KILLED_TWICE),))
                return CompileFailure(compiler_diagnostics(output))
            binary = Binary(self.binary_name, built.read_bytes(), kernel_resources(output))
        self._save(key, binary)
        return binary

    def _stop_if_cancelled(self) -> None:
        if self.cancel.is_set():
            raise Cancelled("cancelled before compiling")

    def _spec(self, folder: str, unit: str) -> SandboxSpec:
        argv: tuple[str, ...] = (self.path, *self.flags, "-I.", unit, "-o", "binary")
        paths = (toolkit_paths if self.device.target == "cuda" else compiler_paths)(self.path)
        if self._nvrtc is not None:
            argv, paths = self._nvrtc.argv(unit, "binary", self.device.arch, argv), (*paths, *self._nvrtc.read_only)
        return SandboxSpec(
            argv=argv,
            workspace=folder,
            cwd=folder,
            read_only=paths,
            allow_fork=True,
            limits=SandboxLimits(cpu_seconds=int(COMPILE_SECONDS)),
        )

    def _save(self, key: str, binary: Binary) -> None:
        folder = self._cache / key[:2] / key
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder.parent))
        (partial / "binary").write_bytes(binary.content)
        (partial / "report.json").write_text(json.dumps(to_builtins(binary.resources)), encoding="utf-8")
        try:
            partial.rename(folder)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)


def files_of(candidate: Candidate) -> dict[str, str]:
    """Returns name → text of all files to compile: sources, the generated `plan.h`, and vetted headers (our own
    headers, which candidates may include) that they include."""
    own = {**candidate.sources, "plan.h": plan_header(candidate.plan)}
    return {**included(own.values(), own), **own}


def lay_out(files: dict[str, str], folder: str, suffix: str) -> str | Diagnostic:
    """Writes `files` to `folder`, where the sandbox can read them. Returns the name of the one file to compile, which
    includes all others with this `suffix`; a Diagnostic if there is no file with it."""
    for name, text in files.items():
        Path(folder, name).parent.mkdir(exist_ok=True)
        Path(folder, name).write_text(text, encoding="utf-8")
    units = sorted(name for name in files if name.endswith(f".{suffix}"))
    if not units:
        return Diagnostic(message=f"no .{suffix} file to compile")
    unit = units[0]
    if len(units) > 1:
        unit = f"all_units.{suffix}"
        Path(folder, unit).write_text("".join(f'#include "{name}"\n' for name in units), encoding="utf-8")
    os.chmod(folder, 0o755)
    return unit


@lru_cache(maxsize=8)
def compiler_version(path: str) -> str:
    """Returns what the compiler at `path` prints for `--version`; it is part of a build's cache key."""
    import subprocess

    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip()
