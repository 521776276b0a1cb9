"""Reads how a process rounds floating-point numbers. A kernel on the CPU must not change that, because applied kernels
run in the user's process.

Standard library only."""

from __future__ import annotations

import ctypes
import platform

#: Bytes of glibc's fenv_t and more; on x86-64 MXCSR is at byte 28, with six bits of status.
ENVIRONMENT_BYTES, MXCSR, STATUS = 64, 28, 0x3F


class LeftChangedError(RuntimeError):
    """A kernel has changed how its process rounds: the rounding mode, or whether denormal numbers are
    flushed to zero."""


def floating_point_control() -> tuple[int, int]:
    """Returns the rounding mode of this thread, and on x86-64 the control bits of MXCSR, such as flushing to zero (0 on
    other processors)."""
    libm = ctypes.CDLL("libm.so.6")
    environment = (ctypes.c_uint8 * ENVIRONMENT_BYTES)()
    libm.fegetenv(environment)
    known = platform.machine() == "x86_64"
    control = int.from_bytes(bytes(environment[MXCSR : MXCSR + 4]), "little") & ~STATUS if known else 0
    return libm.fegetround(), control
