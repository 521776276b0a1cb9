"""An answer of the teacher: a source for a task; and how sources are taken apart and joined."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from kernel_assistant.records.canonical import Canonical

_HEAD = re.compile(r"// (set|scratch|launch): (.*)")


@dataclass(frozen=True)
class Answer:
    """`source` is the text inside the code fence: the lines `// set:`, `// scratch:` and `// launch:`, then includes,
    then kernels. `families` names the forms that it uses."""

    source: str
    families: tuple[str, ...]


#: Answers for a task and a target ("cpu", "cuda"), best guess first; [] where the form does not fit. Inputs are called
#: as in the graph, results out0, out1, …, kernels k0, k1, …
Family = Callable[[Canonical, str, Random], list[Answer]]


@dataclass(frozen=True)
class Pieces:
    """The parts of a source. `sets` are constants such as `T=256`, `scratch` buffers such as `w0 f32[B]`."""

    sets: tuple[str, ...]
    scratch: tuple[str, ...]
    launches: tuple[str, ...]
    includes: tuple[str, ...]
    code: str

    def source(self) -> str:
        lines = [f"// set: {' '.join(self.sets)}"] if self.sets else []
        lines += [f"// scratch: {'; '.join(self.scratch)}"] if self.scratch else []
        lines += [f"// launch: {launch}" for launch in self.launches]
        lines += [f'#include "{name}"' for name in self.includes]
        return "\n".join([*lines, self.code.strip()]) + "\n"


def taken_apart(source: str) -> Pieces:
    found: dict[str, list[str]] = {"set": [], "scratch": [], "launch": [], "include": [], "code": []}
    for line in source.splitlines():
        head = _HEAD.fullmatch(line)
        if head is not None:
            found[head[1]] += {"set": head[2].split(), "scratch": head[2].split("; ")}.get(head[1], [head[2]])
        elif line.startswith("#include "):
            found["include"].append(line[len("#include ") :].strip('"'))
        else:
            found["code"].append(line)
    sets, scratch, launches, includes, code = found.values()
    return Pieces(tuple(sets), tuple(scratch), tuple(launches), tuple(includes), "\n".join(code))


def joined(parts: Sequence[Pieces]) -> Pieces:
    """Joins sources whose names differ into one."""
    return Pieces(
        tuple(one for part in parts for one in part.sets),
        tuple(one for part in parts for one in part.scratch),
        tuple(one for part in parts for one in part.launches),
        tuple(dict.fromkeys(one for part in parts for one in part.includes)),
        "\n".join(part.code.strip() for part in parts),
    )


def renamed(source: str, names: dict[str, str]) -> str:
    """Replaces words of the source, all at once."""
    if not names:
        return source
    pattern = r"\b(" + "|".join(map(re.escape, names)) + r")\b"
    return re.sub(pattern, lambda found: names[found[1]], source)


def kernel(target: str, name: str, body: Sequence[str], threads: str = "T") -> str:
    """The text of a kernel; the lines of its body get indented."""
    lines = [f"  {line}" for text in body for line in text.split("\n")]
    if target == "cuda":
        bounds = f"__launch_bounds__({threads})"
        head = f'extern "C" __global__ void {bounds} {name}(const __grid_constant__ {name}_args a) {{'
    else:
        head = f'extern "C" void {name}(const {name}_args* a) {{'
    return "\n".join([head, *lines, "}"])
