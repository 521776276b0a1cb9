"""Builds the extensions of free-form candidates in the sandbox, under the user's interpreter; cached by content."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from kernel_assistant.environment.builds.compile import CompileFailure, compiler_version
from kernel_assistant.environment.builds.diagnostics import compiler_diagnostics
from kernel_assistant.environment.builds.headers import included
from kernel_assistant.environment.builds.killed import compiled
from kernel_assistant.environment.freeform_candidate import ModelCandidate
from kernel_assistant.environment.measuring import MEASURING
from kernel_assistant.errors import Cancelled, MissingError
from kernel_assistant.records import Diagnostic
from kernel_assistant.records.codec import encode
from kernel_assistant.sandbox.contract import GIB, Sandbox, SandboxLimits, SandboxSpec
from kernel_assistant.sandbox.paths import compiler_paths, interpreter_paths, toolkit_paths
from kernel_assistant.sandbox.run import Completed
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts

WORKER = Path(__file__).resolve().parent.parent / "worker"
BOOT = str(WORKER / "freeform" / "boot.py")
#: Subfolder of a build for the vetted headers that the candidate includes.
HEADERS = "vetted"
BUILD_SECONDS = 600.0
WORKDIR_NVCC_FLAGS = ("-O3", "--use_fast_math", "-c")


class FreeformBuilder:
    """Builds the native extensions of free-form candidates for one device and one interpreter."""

    def __init__(
        self,
        device: DeviceFacts,
        python: str,
        versions: dict[str, Any],
        sandbox: Sandbox,
        cache_dir: Path,
        cancel: threading.Event,
    ) -> None:
        self.device, self.sandbox, self.cancel = device, sandbox, cancel
        self.paths = interpreter_paths(python)
        self.compiler = cpu.compiler()
        self._versions = [versions.get(name, "") for name in ("python", "torch", "cuda")]
        self._cache = cache_dir / "freeform"

    def build(self, candidate: ModelCandidate) -> Path | CompileFailure:
        """Returns the folder with the built extensions, or the failure if they do not compile. Raises Cancelled, and
        MissingError if the user's interpreter has no ninja."""
        key = self._key(candidate)
        folder = self._cache / key[:2] / key
        if (folder / "extensions.json").is_file():
            return folder
        if candidate.is_workdir:
            failed = self._check_kernels(candidate)
            if failed:
                return failed
        return self._build(candidate, folder)

    def _key(self, candidate: ModelCandidate) -> str:
        identity = [
            candidate.text,
            candidate.sources,
            _headers(candidate),
            self._versions,
            self.device.arch,
            compiler_version(self.compiler),
            compiler_version(cuda.compiler()) if self.device.target == "cuda" else "",
        ]
        return hashlib.sha256(encode(identity)).hexdigest()[:32]

    def _build(self, candidate: ModelCandidate, folder: Path) -> Path | CompileFailure:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix="build-", dir=folder.parent))
        try:
            self._write(candidate, partial)
            done = compiled(self.sandbox, self._spec(partial), timeout=BUILD_SECONDS, cancel=self.cancel)
            failed = self._failure(done)
            if failed:
                return failed
            try:
                partial.rename(folder)
            except OSError:  # another process built the same meanwhile
                if not folder.is_dir():
                    raise
            return folder
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _write(self, candidate: ModelCandidate, folder: Path) -> None:
        _write_sources(candidate, folder)
        units = sorted(name for name in candidate.sources if name.endswith((".cu", ".cpp")))
        (folder / "request.json").write_text(json.dumps({"text": candidate.text, "sources": units}), encoding="utf-8")
        os.chmod(folder, 0o755)

    def _failure(self, done: Completed) -> CompileFailure | None:
        if done.cancelled:
            raise Cancelled("cancelled while building")
        if done.timed_out:
            return CompileFailure((Diagnostic(message=f"building took longer than {BUILD_SECONDS:.0f} s"),))
        if done.exceeded:
            return CompileFailure((Diagnostic(message=f"building took too much: {done.exceeded}"),))
        if done.returncode == 0:
            return None
        words = done.stderr.decode(errors="replace")
        if "Ninja is required" in words:
            raise MissingError("building a candidate's extension needs ninja", "install it: pip install ninja")
        return CompileFailure(compiler_diagnostics(done.stdout.decode(errors="replace") + "\n" + words))

    def _spec(self, folder: Path) -> SandboxSpec:
        gpu = self.device.target == "cuda"
        tools = cuda.compiler() if gpu else ""
        return SandboxSpec(
            argv=(self.paths[0], "-I", BOOT, "build"),
            workspace=str(folder),
            read_only=(
                *self.paths,
                str(WORKER),
                *compiler_paths(self.compiler),
                *(toolkit_paths(tools) if gpu else ()),
            ),
            env=self._environment(folder, tools),
            gpu=gpu,
            allow_fork=True,
            limits=SandboxLimits(memory_bytes=16 * GIB, processes=512, cpu_seconds=int(4 * BUILD_SECONDS)),
        )

    def _environment(self, folder: Path, tools: str) -> dict[str, str]:
        folders = [os.path.dirname(self.paths[0]), *([os.path.dirname(os.path.realpath(tools))] if tools else [])]
        variables = {
            "PATH": ":".join([*folders, "/usr/local/bin", "/usr/bin", "/bin"]),
            "HOME": str(folder),
            "CXX": self.compiler,
            "CPATH": str(folder / HEADERS),
            "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
            "MAX_JOBS": str(os.cpu_count() or 1),
        }
        if tools:
            variables["CUDA_HOME"] = os.path.dirname(os.path.dirname(os.path.realpath(tools)))
            variables["TORCH_CUDA_ARCH_LIST"] = architecture_number(self.device.arch)
            variables["TRITON_CACHE_DIR"] = str(folder / "triton")
        return variables

    def _check_kernels(self, candidate: ModelCandidate) -> CompileFailure | None:
        """Compiles each kernel file alone with nvcc and returns the first failure, or None. This comes before the whole
        extension is built, because it takes seconds instead of half a minute."""
        return compile_kernels(candidate, self.device.arch, self.sandbox, self.cancel)


def compile_kernels(
    candidate: ModelCandidate, arch: str, sandbox: Sandbox, cancel: threading.Event
) -> CompileFailure | None:
    """Compiles a workdir's `kernels/*.cu` with the flags of CUDA-Agent. Returns the failure of the first file that does
    not compile, or None. Needs no GPU. Raises MissingError if there is no nvcc."""
    nvcc = cuda.compiler()
    with tempfile.TemporaryDirectory(prefix="kernel-assistant-kernels-") as folder:
        _write_sources(candidate, Path(folder))
        os.chmod(folder, 0o755)
        for name in sorted(name for name in candidate.sources if name.endswith(".cu") and not _binds(candidate, name)):
            spec = SandboxSpec(
                argv=(nvcc, *WORKDIR_NVCC_FLAGS, f"-arch={arch}", f"-I{HEADERS}", name, "-o", "kernel.o"),
                workspace=folder,
                read_only=toolkit_paths(nvcc),
                allow_fork=True,
                limits=SandboxLimits(cpu_seconds=int(BUILD_SECONDS)),
            )
            done = compiled(sandbox, spec, timeout=BUILD_SECONDS, cancel=cancel)
            if done.cancelled:
                raise Cancelled("cancelled while building")
            if done.returncode:
                return CompileFailure(
                    compiler_diagnostics((done.stdout + b"\n" + done.stderr).decode(errors="replace"))
                )
    return None


def _headers(candidate: ModelCandidate) -> dict[str, str]:
    return included([candidate.text, *candidate.sources.values()])


def _write_sources(candidate: ModelCandidate, folder: Path) -> None:
    headers = {f"{HEADERS}/{name}": text for name, text in _headers(candidate).items()}
    for name, text in {**headers, **candidate.sources}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _binds(candidate: ModelCandidate, name: str) -> bool:
    """Whether the source file `name` includes headers of torch or pybind11, so that it compiles only in the full build,
    which has the paths of these headers."""
    return any(header in candidate.sources[name] for header in ("torch/", "pybind11", "ATen/", "binding_registry.h"))


def architecture_number(arch: str) -> str:
    """Returns an architecture in the form that PyTorch uses: `9.0` for `sm_90`, `9.0a` for `sm_90a`."""
    digits = arch.removeprefix("sm_")
    suffix = "a" if digits.endswith("a") else ""
    digits = digits.removesuffix("a")
    return f"{digits[:-1]}.{digits[-1]}{suffix}"


def runner_spec(
    candidate: ModelCandidate, built: Path, workspace: Path, builder: FreeformBuilder, threads: int
) -> SandboxSpec:
    """Returns the command and the limits of the sandboxed process that runs this candidate. It may fork only if the
    candidate uses Triton, which starts a compiler at the first call."""
    gpu = builder.device.target == "cuda"
    compilers: tuple[str, ...] = ()
    if gpu and candidate.uses_triton:
        compilers = (*compiler_paths(builder.compiler), *toolkit_paths(cuda.compiler()))
    memory = builder.device.memory_bytes
    return SandboxSpec(
        argv=(builder.paths[0], "-I", BOOT, "run", "{fd}"),
        workspace=str(workspace),
        read_only=(*builder.paths, str(WORKER), str(built), *compilers),
        gpu=gpu,
        allow_fork=candidate.uses_triton,
        env={
            **MEASURING,
            "OMP_NUM_THREADS": str(threads),
            "HOME": str(workspace),
            "USER": "nobody",  # torch asks for the user name, and the sandbox has no list of users
            "TRITON_CACHE_DIR": str(workspace / "triton"),
        },
        limits=SandboxLimits(
            memory_bytes=max(memory // 4, 4 * GIB) if not gpu else 16 * GIB,
            shared_bytes=memory,
            processes=512,
            file_bytes=64 << 20,
            cpu_seconds=24 * 3600,
        ),
    )
