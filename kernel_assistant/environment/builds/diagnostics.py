"""Parses the messages of compilers. Pure."""

from __future__ import annotations

import re

from kernel_assistant.records import Diagnostic, KernelResources

_GCC = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?P<severity>fatal error|error|warning): (?P<message>.*)$"
)
_NVCC = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): (?P<severity>catastrophic error|error|warning)[^:]*: (?P<message>.*)$"
)
_PTXAS = re.compile(r"^ptxas (?P<severity>fatal|error|warning)\s*: (?P<message>.*)$")

MOST_DIAGNOSTICS = 20


def compiler_diagnostics(output: str) -> tuple[Diagnostic, ...]:
    """Returns the errors in the output of g++, clang++, nvcc or ptxas, with file and line where they are known. If none
    is recognized, returns the last line of `output` as the only error."""
    diagnostics = []
    for line in output.splitlines():
        match = _GCC.match(line) or _NVCC.match(line) or _PTXAS.match(line)
        if match and "warning" not in match["severity"]:
            groups = match.groupdict()
            name = (groups.get("file") or "").rsplit("/", 1)[-1]
            diagnostics.append(
                Diagnostic(message=match["message"].strip()[:300], file=name, line=int(groups.get("line") or 0))
            )
    if not diagnostics:
        lines = [line for line in output.splitlines() if line.strip()]
        diagnostics = [Diagnostic(message=lines[-1].strip()[:300] if lines else "the compiler failed and said nothing")]
    return tuple(diagnostics[:MOST_DIAGNOSTICS])


def kernel_resources(output: str) -> tuple[KernelResources, ...]:
    """Returns registers, shared memory, stack and spills of each kernel from the output of `ptxas --resource-usage`."""
    resources = []
    symbol, stack, spills = "", 0, 0
    for line in output.splitlines():
        if match := re.search(r"Function properties for (\S+)", line):
            symbol, stack, spills = match[1], 0, 0
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, spills = int(match[1]), int(match[2]) + int(match[3])
        elif (match := re.search(r"Used (\d+) registers", line)) and symbol:
            shared = re.search(r"(\d+) bytes smem", line)
            resources.append(
                KernelResources(
                    symbol=symbol,
                    registers=int(match[1]),
                    shared_bytes=int(shared[1]) if shared else 0,
                    spill_bytes=spills,
                    stack_bytes=stack,
                )
            )
    return tuple(resources)
