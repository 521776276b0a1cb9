"""The compiled code of a candidate as readable text: PTX and SASS of CUDA kernels, assembly of CPU kernels.

The text is made on request, so that no job waits for it, and is cached by content beside the builds. Compilers and
disassemblers read generated code, so they run in the sandbox, under the limits of a build.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.environment.builds.compile import COMPILE_SECONDS, compiler_version, files_of, lay_out
from kernel_assistant.environment.builds.diagnostics import compiler_diagnostics
from kernel_assistant.errors import Cancelled, MissingError, StoreError, boundary
from kernel_assistant.records import Candidate, Diagnostic, encode
from kernel_assistant.sandbox.contract import Sandbox, SandboxLimits, SandboxSpec
from kernel_assistant.sandbox.paths import compiler_paths, toolkit_paths
from kernel_assistant.sandbox.run import run
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts

#: Folders of pip packages that contain nvdisasm: Triton, which PyTorch for CUDA installs, and NVIDIA's own package.
_INSTALLED = ("triton/backends/nvidia/bin", "nvidia/cu*/bin")
#: The largest size of one text.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Assembly:
    """The result of `Assembler.assembly`: `files` maps file names to texts; `missing` has one line, with the reason,
    for each text that could not be made."""

    files: dict[str, str]
    missing: tuple[str, ...]


class Assembler:
    """Makes the readable compiled code of candidates for one device. `python` is the user's interpreter; nvdisasm is
    also searched for among its packages."""

    def __init__(
        self, device: DeviceFacts, sandbox: Sandbox, cache_dir: Path, python: str, cancel: threading.Event
    ) -> None:
        self._device, self._sandbox, self._python, self._cancel = device, sandbox, python, cancel
        self._cache = cache_dir / "builds"

    def assembly(self, candidate: Candidate, binary: bytes | None) -> Assembly:
        """Returns a candidate's compiled code as text. On the CPU that is the assembly to which its sources compile. On
        CUDA it is the PTX to which they compile, and the SASS in `binary`, the cubin that was measured (None if it was
        not kept). A text that cannot be made, for example without a compiler or nvdisasm, is left out; the reason is in
        `missing`. Raises StoreError if the cache cannot be written, SandboxError if the sandbox fails, or Cancelled."""
        stem = f"kernels.{self._device.arch}"
        makers: dict[str, Callable[[], str]] = {f"{stem}.s": lambda: self._compiled(candidate)}
        if self._device.target == "cuda":
            makers = {
                f"{stem}.ptx": lambda: self._compiled(candidate),
                f"{stem}.sass": lambda: self._disassembled(binary),
            }
        files, missing = dict[str, str](), list[str]()
        for name, make in makers.items():
            try:
                with boundary(StoreError, f"{name} cannot be kept"):
                    files[name] = make()
            except MissingError as error:
                missing.append(f"no {name}: {error.cause}")
        return Assembly(files, tuple(missing))

    def _compiled(self, candidate: Candidate) -> str:
        on_gpu = self._device.target == "cuda"
        compiler = cuda.compiler() if on_gpu else cpu.compiler()
        if not on_gpu and self._device.name != (here := cpu.facts().name):
            raise MissingError(f"the kernels were built for {self._device.name}, this is {here}", "")
        flags = (*cuda.PTX_FLAGS, f"-arch={self._device.arch}") if on_gpu else cpu.ASSEMBLY_FLAGS
        files = files_of(candidate)

        def argv(folder: str) -> tuple[str, ...]:
            unit = lay_out(files, folder, "cu" if on_gpu else "cpp")
            if isinstance(unit, Diagnostic):
                raise MissingError(unit.message, "")
            return (compiler, *flags, "-I.", unit, "-o", "text")

        paths = (toolkit_paths if on_gpu else compiler_paths)(compiler)
        return self._kept([files, flags, compiler_version(compiler), self._device.name], argv, paths)

    def _disassembled(self, cubin: bytes | None) -> str:
        if cubin is None:
            raise MissingError("the job kept no cubin", "")
        tool = disassembler(self._python)

        def argv(folder: str) -> tuple[str, ...]:
            Path(folder, "kernels.cubin").write_bytes(cubin)
            os.chmod(folder, 0o755)
            return (tool, "-c", "kernels.cubin")

        identity = [hashlib.sha256(cubin).hexdigest(), compiler_version(tool)]
        return self._kept(identity, argv, (os.path.dirname(os.path.realpath(tool)),))

    def _kept(self, identity: object, argv: Callable[[str], tuple[str, ...]], paths: tuple[str, ...]) -> str:
        """Returns the text that the cache has for `identity` (any record that can be encoded). Without one, runs the
        command `argv(folder)` in a new folder and stores its output: the file `text`, if the command wrote one, else
        its stdout."""
        key = hashlib.sha256(encode(identity)).hexdigest()[:32]
        path = self._cache / key[:2] / f"{key}.txt"
        if path.is_file():
            return path.read_text(encoding="utf-8", errors="replace")
        content = self._run(argv, paths)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(draft, path)
        return content.decode(errors="replace")

    def _run(self, argv: Callable[[str], tuple[str, ...]], paths: tuple[str, ...]) -> bytes:
        with tempfile.TemporaryDirectory(prefix="kernel-assistant-assembly-") as folder:
            command = argv(folder)
            spec = SandboxSpec(
                argv=command,
                workspace=folder,
                cwd=folder,
                read_only=paths,
                allow_fork=True,
                limits=SandboxLimits(cpu_seconds=int(COMPILE_SECONDS), file_bytes=_MOST_BYTES),
            )
            done = run(self._sandbox, spec, timeout=COMPILE_SECONDS, cancel=self._cancel, max_output=_MOST_BYTES)
            if done.cancelled:
                raise Cancelled("cancelled while disassembling")
            if done.timed_out or done.exceeded or done.returncode:
                raise MissingError(f"{os.path.basename(command[0])}: {_why(done.timed_out, done.stderr)}", "")
            written = Path(folder, "text")
            return written.read_bytes() if written.is_file() else done.stdout


def disassembler(python: str = "") -> str:
    """Returns the path of nvdisasm: that of the CUDA toolkit, of the packages of the interpreter `python`, or on PATH.
    Raises MissingError if there is none.

    cuobjdump cannot replace nvdisasm, because it starts nvdisasm itself.
    """
    folders = ["/usr/local/cuda/bin"]
    try:
        folders = [os.path.join(path, below) for path in toolkit_paths(cuda.compiler()) for below in ("", "bin")]
    except MissingError:
        pass  # a machine with PyTorch alone may have triton's
    packages = os.path.join(os.path.dirname(os.path.dirname(python)), "lib/python3*/site-packages")
    own = [path for below in _INSTALLED for path in sorted(glob.glob(os.path.join(packages, below)))] if python else []
    paths = [os.path.join(folder, "nvdisasm") for folder in (*folders, *own)]
    for path in [*paths, shutil.which("nvdisasm") or ""]:
        if path and os.access(path, os.X_OK):
            # The sandbox does not see a link that leads to a virtual environment.
            return os.path.realpath(path)
    raise MissingError("nvdisasm was not found", "install the CUDA toolkit's, or pip install nvidia-cuda-nvdisasm")


def _why(timed_out: bool, stderr: bytes) -> str:
    if timed_out:
        return f"took longer than {COMPILE_SECONDS:.0f} s"
    diagnostics = compiler_diagnostics(stderr.decode(errors="replace"))
    return diagnostics[0].message if diagnostics else "failed and said nothing"
