"""How a process rounds: a kernel on the CPU must leave it as it was, because applied kernels run in the user's process.

Standard library only.
"""

from __future__ import annotations

import ctypes
import platform

#: Bytes of glibc's fenv_t and more; on x86-64 MXCSR is at byte 28, with six bits of status.
ENVIRONMENT_BYTES, MXCSR, STATUS = 64, 28, 0x3F


class LeftChangedError(RuntimeError):
    """A kernel leaves its process in another state."""


def floating_point_control() -> tuple[int, int]:
    """The rounding mode of this thread, and on x86-64 the control bits of MXCSR, such as flushing to zero."""
    libm = ctypes.CDLL("libm.so.6")
    environment = (ctypes.c_uint8 * ENVIRONMENT_BYTES)()
    libm.fegetenv(environment)
    known = platform.machine() == "x86_64"
    control = int.from_bytes(bytes(environment[MXCSR : MXCSR + 4]), "little") & ~STATUS if known else 0
    return libm.fegetround(), control
