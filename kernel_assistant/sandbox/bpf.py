"""A small assembler for seccomp's classic BPF. It makes one self-contained group of instructions for each restricted
system call.

The filter reads `struct seccomp_data` of `linux/seccomp.h`. Every argument that is tested has 32 bits in the kernel, so
only its low word is read. This works on little-endian machines only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

LOAD_WORD = 0x20
JUMP_EQUAL = 0x15
JUMP_GREATER = 0x25
JUMP_GREATER_EQUAL = 0x35
JUMP_ANY_BIT = 0x45
RETURN = 0x06

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
ERRNO = 0x00050000

O_TRUNC = 0o1000

OFFSET_NUMBER = 0
OFFSET_ARCH = 4
OFFSET_ARGUMENTS = 16


@dataclass
class BpfProgram:
    """Instructions in order. `own_pid_at` lists the indices of instructions whose constant is the process id, which
    is known only when the filter is loaded."""

    instructions: list[tuple[int, int, int, int]] = field(default_factory=list)
    own_pid_at: list[int] = field(default_factory=list)

    def emit(self, code: int, k: int, jump_true: int = 0, jump_false: int = 0) -> None:
        self.instructions.append((code, jump_true, jump_false, k))

    def assemble(self) -> bytes:
        """Returns the program as an array of `struct sock_filter`."""
        return b"".join(struct.pack("=HBBI", *instruction) for instruction in self.instructions)

    def begin(self, audit_arch: int, last_known: int, x32_bit: int | None, unknown_errno: int) -> None:
        """Begins the program: kills the process at a call of another architecture or of the x32 ABI (numbers from
        `x32_bit` on, if not None), and refuses calls with numbers above `last_known` with the error `unknown_errno`."""
        self.emit(LOAD_WORD, OFFSET_ARCH)
        self.emit(JUMP_EQUAL, audit_arch, 1, 0)
        self.emit(RETURN, KILL_PROCESS)
        self.emit(LOAD_WORD, OFFSET_NUMBER)
        if x32_bit is not None:
            self.emit(JUMP_GREATER_EQUAL, x32_bit, 0, 1)
            self.emit(RETURN, KILL_PROCESS)
        self.emit(JUMP_GREATER, last_known, 0, 1)
        self.emit(RETURN, ERRNO | unknown_errno)

    def deny(self, number: int, errno: int) -> None:
        self.emit(JUMP_EQUAL, number, 0, 1)
        self.emit(RETURN, ERRNO | errno)

    def allow_values(self, number: int, argument: int, values: tuple[int, ...], errno: int) -> None:
        """Allows system call `number` only if its argument with index `argument` is one of `values`; else it fails with
        `errno`."""
        self._test(number, argument, JUMP_EQUAL, values, ALLOW, ERRNO | errno)

    def deny_values(self, number: int, argument: int, values: tuple[int, ...], errno: int) -> None:
        self._test(number, argument, JUMP_EQUAL, values, ERRNO | errno, ALLOW)

    def allow_bits(self, number: int, argument: int, mask: int, errno: int) -> None:
        """Allows system call `number` only if its argument with index `argument` has at least one bit of `mask`; else
        it fails with `errno`."""
        self._test(number, argument, JUMP_ANY_BIT, (mask,), ALLOW, ERRNO | errno)

    def deny_bits(self, number: int, argument: int, mask: int, errno: int) -> None:
        self._test(number, argument, JUMP_ANY_BIT, (mask,), ERRNO | errno, ALLOW)

    def allow_own_pid(self, number: int, argument: int, errno: int, *, or_zero: bool = False) -> None:
        """Allows system call `number` only if the argument is the id of the calling process. With `or_zero` 0 is
        allowed too, which also means this process."""
        values = (0, 0) if or_zero else (0,)
        self._test(number, argument, JUMP_EQUAL, values, ALLOW, ERRNO | errno)
        self.own_pid_at.append(len(self.instructions) - 3)

    def allow_value_without_bit(self, number: int, value: int, bit: int, errno: int) -> None:
        """Allows system call `number` only if the first argument is `value` and the second does not have `bit`."""
        self.emit(JUMP_EQUAL, number, 0, 6)
        self.emit(LOAD_WORD, OFFSET_ARGUMENTS)
        self.emit(JUMP_EQUAL, value, 0, 3)
        self.emit(LOAD_WORD, OFFSET_ARGUMENTS + 8)
        self.emit(JUMP_ANY_BIT, bit, 1, 0)
        self.emit(RETURN, ALLOW)
        self.emit(RETURN, ERRNO | errno)

    def deny_truncating_reads(self, number: int, argument: int, errno: int) -> None:
        """Denies opening with O_TRUNC if the access mode is O_RDONLY (0) or 3; with O_WRONLY (1) or O_RDWR (2) it is
        allowed."""
        self.emit(JUMP_EQUAL, number, 0, 7)
        self.emit(LOAD_WORD, OFFSET_ARGUMENTS + 8 * argument)
        self.emit(JUMP_ANY_BIT, O_TRUNC, 0, 3)
        self.emit(JUMP_ANY_BIT, 1, 0, 1)
        self.emit(JUMP_ANY_BIT, 2, 2, 1)
        self.emit(JUMP_ANY_BIT, 2, 0, 1)
        self.emit(RETURN, ALLOW)
        self.emit(RETURN, ERRNO | errno)

    def allow_rest(self) -> None:
        self.emit(RETURN, ALLOW)

    def _test(self, number: int, argument: int, test: int, values: tuple[int, ...], hit: int, miss: int) -> None:
        self.emit(JUMP_EQUAL, number, 0, len(values) + 3)
        self.emit(LOAD_WORD, OFFSET_ARGUMENTS + 8 * argument)
        for position, value in enumerate(values):
            self.emit(test, value & 0xFFFFFFFF, len(values) - position, 0)
        self.emit(RETURN, miss)
        self.emit(RETURN, hit)
