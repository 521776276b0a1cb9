"""Makes the PTX and SASS (GPU) or the assembly (CPU) of a job's best candidate when a report needs them."""

from __future__ import annotations

import threading
from pathlib import Path

from kernel_assistant.config import Settings
from kernel_assistant.environment.builds.assembly import Assembler, Assembly
from kernel_assistant.errors import UsageError
from kernel_assistant.records import decode
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.session.artifacts import read_workspace
from kernel_assistant.store import JobRow
from kernel_assistant.targets.base import DeviceFacts


def assembly_of(row: JobRow, settings: Settings) -> Assembly:
    """Returns the PTX and SASS (GPU) or the assembly (CPU) of a job's best candidate, made from the job's artifacts by
    this machine's compilers in a sandbox.

    Takes seconds the first time; later calls read the texts from the cache. Raises UsageError if the job has no
    kernels, MissingError if no sandbox works.
    """
    if row.result is None or "plan.json" not in row.result.artifacts:
        raise UsageError(f"job {row.id} has no kernels", f"kernel-assistant show {row.id}")
    folder = Path(row.result.artifacts["plan.json"]).parent
    device = decode((folder / "device.json").read_bytes(), DeviceFacts)
    cubin = folder / "binaries" / f"kernels.{device.arch}.cubin"
    maker = Assembler(device, choose(settings.sandbox), settings.cache_dir, row.options.python, threading.Event())
    return maker.assembly(read_workspace(folder), cubin.read_bytes() if cubin.is_file() else None)
