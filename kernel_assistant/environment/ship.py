"""The binaries of a candidate for every architecture that is shipped. They are compiled here, not run here."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernel_assistant.environment.compile import Binary, CompileFailure, Compiler
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records import Candidate
from kernel_assistant.sandbox.contract import Sandbox
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.worker.runner.plan import PlanError, evaluate

#: Among the binaries of a result: architecture → why there is none for it.
LEFT_OUT = "left_out.json"


@dataclass(frozen=True)
class Shipment:
    """`binaries` by file name; `left_out` says why an architecture that is usually shipped has none."""

    binaries: dict[str, bytes]
    left_out: dict[str, str]

    def files(self) -> dict[str, bytes]:
        """As they lie in a result's folder `binaries`."""
        told = {LEFT_OUT: json.dumps(self.left_out, indent=1).encode()} if self.left_out else {}
        return {**self.binaries, **told}


def other_architectures(device: DeviceFacts) -> tuple[str, ...]:
    """What is shipped besides the binary for `device`. The CPU's compiler builds for the machine it runs on."""
    return tuple(arch for arch in cuda.SHIPPED if arch != device.arch) if device.target == "cuda" else ()


def ship(
    candidate: Candidate,
    device: DeviceFacts,
    dims: dict[str, int],
    *,
    sandbox: Sandbox,
    cache_dir: Path,
    cancel: threading.Event,
) -> Shipment:
    """Compile `candidate` for the architectures besides `device`'s, in the sandbox and side by side.

    The result for `device` does not depend on them: what goes wrong, a cancel too, is in `left_out`.

    `dims` are the declared sizes, at which shared memory is counted.
    """
    archs = other_architectures(device)

    def build(arch: str) -> tuple[str, Binary | str]:
        try:
            compiler = Compiler(msgspec.structs.replace(device, arch=arch), sandbox, cache_dir, cancel)
            built = compiler.build(candidate)
        except KernelAssistantError as error:
            return arch, error.cause
        if isinstance(built, CompileFailure):
            return arch, f"does not compile: {built.diagnostics[0].message}"
        return arch, _too_large(candidate, built, arch, dims) or built

    with ThreadPoolExecutor(max(len(archs), 1), "ship") as pool:
        found = dict(pool.map(build, archs))
    return Shipment(
        binaries={one.name: one.content for one in found.values() if isinstance(one, Binary)},
        left_out={arch: one for arch, one in found.items() if isinstance(one, str)},
    )


def _too_large(candidate: Candidate, built: Binary, arch: str, dims: dict[str, int]) -> str:
    """Why the launches do not fit into a block's shared memory, "" if they do."""
    own = {one.symbol: one.shared_bytes for one in built.resources}
    limit = cuda.shared_bytes_per_block(arch)
    for launch in (*candidate.plan.prepare, *candidate.plan.launches):
        try:
            needed = evaluate(launch.shared, dims) + own.get(launch.symbol, 0)
        except PlanError as error:
            return f"{launch.symbol}: its shared memory is not known: {error}"
        if needed > limit:
            return f"{launch.symbol} needs {needed} bytes of shared memory in a block, {arch} has {limit}"
    return ""
