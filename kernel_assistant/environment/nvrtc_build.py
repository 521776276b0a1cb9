"""Compiles one source file with NVRTC, or with nvcc if NVRTC fails. Runs in the sandbox; standard library only.

    python nvrtc_build.py LIBRARY BUILTINS UNIT OUTPUT OPTIONS... -- NVCC FLAGS...

NVRTC is nvcc's compiler as a library: almost the same machine code in half the time, without the programs that nvcc
starts. It has no headers of the C++ library, so nvcc compiles a file that NVRTC refuses, and reports its errors.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p


def build(library: str, builtins: str, unit: str, output: str, options: list[str]) -> bool:
    """Compiles the file `unit` with NVRTC to `output`, and prints the report of ptxas on its kernels. Returns whether
    that succeeded; if not, nothing has been written or printed."""
    # NVRTC opens its library of built-in headers by file name only.
    ctypes.CDLL(builtins, ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(library)
    with open(unit, "rb") as file:
        source = file.read()
    program, size = c_void_p(), c_size_t()
    arguments = (c_char_p * len(options))(*(os.fsencode(option) for option in options))
    if nvrtc.nvrtcCreateProgram(byref(program), c_char_p(source), c_char_p(os.fsencode(unit)), c_int(0), None, None):
        return False
    if nvrtc.nvrtcCompileProgram(program, c_int(len(options)), arguments):
        return False
    nvrtc.nvrtcGetProgramLogSize(program, byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    if nvrtc.nvrtcGetCUBINSize(program, byref(size)):
        return False
    binary = ctypes.create_string_buffer(size.value)
    if nvrtc.nvrtcGetCUBIN(program, binary):
        return False
    with open(output, "wb") as file:
        file.write(binary.raw)
    sys.stdout.buffer.write(log.value)
    return True


def main(words: list[str]) -> None:
    """Compiles with NVRTC and returns; if that fails, replaces this process by nvcc. `words` is the command line."""
    split = words.index("--")
    library, builtins, unit, output, *options = words[:split]
    nvcc = words[split + 1 :]
    try:
        built = build(library, builtins, unit, output, options)
    except (OSError, AttributeError):
        built = False
    if not built:
        os.execv(nvcc[0], nvcc)


if __name__ == "__main__":
    main(sys.argv[1:])
