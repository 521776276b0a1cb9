"""Wraps a shared library of NVIDIA that works through a handle: its signatures, the handle, its errors. Standard
library only."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_void_p

from ..plan import LibraryError


class OpenedLibrary:
    """A shared library with a handle on the current device, made at first use. `create` names the function that makes
    the handle, `status_name` the function that returns the name of a status."""

    create = status_name = ""

    def __init__(self, lib: ctypes.CDLL) -> None:
        self.lib = lib
        self._handle: c_void_p | None = None

    def handle(self) -> c_void_p:
        if self._handle is None:
            handle = c_void_p()
            self.check(self.create, byref(handle))
            self._handle = handle
        return self._handle

    def check(self, call: str, *arguments: object) -> None:
        """Calls the library's function named `call`. Raises LibraryError if its status is not 0."""
        status = getattr(self.lib, call)(*arguments)
        if status:
            raise LibraryError(f"{call}: {self.name_of(status)}")

    def name_of(self, status: int) -> str:
        """Returns the library's own name for a status code."""
        return (getattr(self.lib, self.status_name)(status) or b"unknown").decode()


def declare(lib: ctypes.CDLL, signatures: Mapping[str, Sequence[object]], status_name: str) -> None:
    """Sets the argument and result types of functions: those in `signatures` return a status (int), the function
    `status_name` returns a text."""
    for name, arguments in signatures.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, c_int
    function = getattr(lib, status_name)
    function.argtypes, function.restype = [c_int], c_char_p
