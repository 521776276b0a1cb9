"""Compiles a candidate for the other GPU architectures for which results have binaries. The binaries are not run."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernel_assistant.environment.builds.compile import Binary, CompileFailure, Compiler
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.records import Candidate
from kernel_assistant.sandbox.contract import Sandbox
from kernel_assistant.targets import cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.worker.runner.plan import PlanError, evaluate

#: File beside the binaries of a result: for each architecture without a binary, the reason.
LEFT_OUT = "left_out.json"


@dataclass(frozen=True)
class Shipment:
    """The binaries for other architectures, by file name. `left_out` maps each architecture without a binary to the
    reason."""

    binaries: dict[str, bytes]
    left_out: dict[str, str]

    def files(self) -> dict[str, bytes]:
        """Returns name → content of the files for the folder `binaries` of a result."""
        report = {LEFT_OUT: json.dumps(self.left_out, indent=1).encode()} if self.left_out else {}
        return {**self.binaries, **report}


def other_architectures(device: DeviceFacts) -> tuple[str, ...]:
    """Returns the architectures, besides that of `device`, for which results contain binaries; () for a CPU."""
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
    """Compiles `candidate` for the architectures of `other_architectures`, in the sandbox and in parallel.

    Failures, and a cancellation, raise nothing but are recorded in `left_out`: the result for `device` does not depend
    on them. `dims` are the declared sizes; launches must fit into each architecture's shared memory at these sizes.
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
        results = dict(pool.map(build, archs))
    return Shipment(
        binaries={one.name: one.content for one in results.values() if isinstance(one, Binary)},
        left_out={arch: one for arch, one in results.items() if isinstance(one, str)},
    )


def _too_large(candidate: Candidate, built: Binary, arch: str, dims: dict[str, int]) -> str:
    """Returns a message if a launch needs more shared memory than a block of `arch` has, or if that is unknown; else
    ""."""
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
