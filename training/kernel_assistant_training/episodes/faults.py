"""Mistakes that writers of kernels make, put into the text of a right answer. Pure.

What a fault leads to is for the environment to say: some have no consequence in some sources. Names are those of the
mistakes; `faulty` takes one that has a place in the source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from kernel_assistant_training.episodes.edits import Edit, in_code, in_head, one_of, swap

#: How often each kind is tried first; within a kind all faults are alike.
KINDS = {"compile": 0.35, "plan": 0.15, "wrong": 0.3, "model": 0.2}
_DECLARED = re.compile(r"\b(?:float|double|int|auto|int64_t) (\w+)(?= =|,|\)|\[)")
#: Scalars by the names that the headers' style gives them: where one is made, and where one is used.
_VALUE = re.compile(r"\b(?:float|double|int64_t|bool) ([nstpxbw]\d+|i|j)(?= =)")
_USED = re.compile(r"(?<![\w.>])(?<!float )(?<!double )(?<!int64_t )(?<!bool )[nstpxbw]\d+\b(?! =)")
_NAMES = ("scale", "sum", "mean", "total", "value", "inv", "row", "tmp")


@dataclass(frozen=True)
class Faulty:
    """A source with a mistake, and what the mistake is called."""

    source: str
    fault: str


def faulty(source: str, target: str, random: Random) -> Faulty | None:
    """`source` with one fault; None where none has a place."""
    kinds = sorted(KINDS, key=lambda kind: random.random() ** (1 / KINDS[kind]), reverse=True)
    for kind in kinds:
        table = {**FAULTS[kind], **(ON_CUDA.get(kind, {}) if target == "cuda" else {})}
        for name in random.sample(list(table), len(table)):
            changed = table[name](source, random)
            if changed is not None:
                return Faulty(changed, name)
    return None


def _undeclared(source: str, random: Random) -> str | None:
    """A use of a local name becomes another name, which nobody declared."""
    declared = set(_DECLARED.findall(source))
    other = [name for name in _NAMES if name not in declared]
    used = [
        in_code(rf"(?<![\w.>:&*] )(?<![\w.>:])\b{name}\b(?! =)(?=\s*[-+*/);.])", random.choice(other))
        for name in sorted(declared)
    ]
    return one_of(*used)(source, random) if used and other else None


def _other_syntax(source: str, random: Random) -> str | None:
    """The argument struct is a value on CUDA and a pointer on the CPU; here it is taken for the other."""
    dot = len(re.findall(r"\ba\.\w", source)) > 0
    old, new = (r"\ba\.(?=\w)", "a->") if dot else (r"\ba->(?=\w)", "a.")
    return _everywhere(source, old, new)


def _fewer_parameters(source: str, random: Random) -> str | None:
    return in_code(r"(\((?:float \w+, )*float \w+), float \w+\)", r"\1)")(source, random)


def _wrong_header(source: str, random: Random) -> str | None:
    lines = source.split("\n")
    places = [place for place, line in enumerate(lines) if line.startswith("#include") and "plan.h" not in line]
    if not places:
        return None
    place = random.choice(places)
    found = re.search(r'"(?:ka/)?(\w+)\.(cuh|h)"', lines[place])
    if found is None or random.random() < 0.3:
        del lines[place]
        return "\n".join(lines)
    name, suffix = found[1], found[2]
    wrong = random.choice(
        [f"ka/{name[:-1]}.{suffix}", f"{name}.{suffix}", f"ka/{name}.{'h' if suffix == 'cuh' else 'cuh'}"]
    )
    lines[place] = f'#include "{wrong}"'
    return "\n".join(lines)


def _lost_field(source: str, random: Random) -> str | None:
    return in_head(r"(?<=\()\w+(?:=[^,()]*)?, (?=\w)|, \w+(?:=[^,()]*)?(?=[,)])", "")(source, random)


def _lost_lines(pattern: str) -> Edit:
    """One of the lines that begin so is left out."""

    def apply(source: str, random: Random) -> str | None:
        lines = source.split("\n")
        places = [place for place, line in enumerate(lines) if re.match(pattern, line)]
        if not places:
            return None
        del lines[random.choice(places)]
        return "\n".join(lines)

    return apply


def _lost_step(source: str, random: Random) -> str | None:
    """One of several launches is left out."""
    launches = [line for line in source.split("\n") if line.startswith("// launch:")]
    return _lost_lines("// launch:")(source, random) if len(launches) > 1 else None


def _exchanged(source: str, random: Random, of: tuple[str, ...] = ("x", "p", "b")) -> str | None:
    """Two operands of a kind trade places."""
    kinds = [kind for kind in of if len(set(re.findall(rf"\ba(?:\.|->)({kind}\d)\b", source))) > 1]
    if not kinds:
        return None
    first, second = random.sample(sorted(set(re.findall(rf"\ba(?:\.|->)({random.choice(kinds)}\d)\b", source))), 2)
    pattern = re.compile(rf"(\ba(?:\.|->))({first}|{second})\b")
    return pattern.sub(lambda found: found[1] + (second if found[2] == first else first), source)


def _neighbour(source: str, random: Random) -> str | None:
    """A value that is used becomes another one of the same kernel: what a scalar is made of, or what is written."""
    lines = source.split("\n")
    kernel, places = 0, []
    for number, line in enumerate(lines):
        kernel = number if line.startswith('extern "C"') else kernel
        before = set(_VALUE.findall("\n".join(lines[kernel:number])))
        for found in _USED.finditer(line) if not line.lstrip().startswith(("//", "#")) else ():
            others = sorted(before - {found[0]})
            if others:
                places.append((number, found, others))
    if not places:
        return None
    number, found, others = random.choice(places)
    line = lines[number]
    lines[number] = line[: found.start()] + random.choice(others) + line[found.end() :]
    return "\n".join(lines)


def _scratch_size(source: str, random: Random) -> str | None:
    """A buffer between kernels gets too small, or one of its sizes is taken for another."""
    lines = source.split("\n")
    places = [
        (number, found)
        for number, line in enumerate(lines)
        if line.startswith("// scratch:")
        for found in re.finditer(r"(?<=[\w*)]), (?:D(\d+)|\d+)(?=[\],])", line)
    ]
    if not places:
        return None
    number, found = random.choice(places)
    new = f", D{int(found[1]) - 1}" if found[1] and int(found[1]) and random.random() < 0.4 else ""
    lines[number] = lines[number][: found.start()] + new + lines[number][found.end() :]
    return "\n".join(lines)


def _everywhere(source: str, old: str, new: str) -> str | None:
    changed = re.sub(old, new, source)
    return changed if changed != source else None


def _half(found: re.Match[str]) -> str:
    return f"{float(found[1]) * 2 + 0.5:g}f"


FAULTS: dict[str, dict[str, Edit]] = {
    "compile": {
        "undeclared": _undeclared,
        "lost_semicolon": in_code(r"(?<=[\w)]);$", ""),
        "lost_bracket": in_code(r"\)(?=;$)|\}\)(?=;$)", ""),
        "other_syntax": _other_syntax,
        "unknown_member": in_code(r"\b(a(?:\.|->))([xpb]\d|out\d)\b", r"\1in"),
        "unknown_function": one_of(
            in_code(r"\bka_(\w+)(?=\()", r"ka_\1f"),
            in_code(r"\bka::sum\b", "ka::total"),
            in_code(r"\bka::max\b", "ka::maximum"),
            in_code(r"\bka::min\b", "ka::minimum"),
            in_code(r"\bka::(pointwise|map_row|fold_row|rows)\b", r"ka::\1s"),
            in_code(r"\.fold<", ".reduce<"),
        ),
        "type": one_of(
            in_code(r"\bconst float (\w+)(?= =)", r"const float* \1"),
            in_code(r"\(float (\w+)(?=[,)])", r"(float* \1"),
            in_code(r"(?<=, )(\w+)\[", r"&\1["),
        ),
        "fewer_parameters": _fewer_parameters,
        "wrong_header": _wrong_header,
        "lost_capture": in_code(r"\[[=&]\]", "[]"),
    },
    "plan": {
        "lost_field": _lost_field,
        "unknown_buffer": one_of(in_head(r"\bout\d\b", "out"), in_head(r"(?<=[(, =])x(\d)\b", r"in\1")),
        "unknown_size": one_of(in_head(r"(?<==)B\b", "N"), in_head(r"(?<==)D(\d+)\b", r"D\g<1>9")),
        "lost_launch": _lost_lines("// launch:"),
        "lost_scratch": _lost_lines("// scratch:"),
        "lost_constants": _lost_lines("// set:"),
    },
    "wrong": {
        "operator": one_of(
            in_code(r"(?<=[\w)]) \+ (?=[\w(])", " - "),
            in_code(r"(?<=[\w)]) - (?=[\w(])", " + "),
            in_code(r"(?<=[\w)]) \* (?=[\w(])", " + "),
            in_code(r"(?<=[\w)]) / (?=[\w(])", " * "),
            in_code(r"(?<=[\w)]) > (?=[\w(])", " < "),
        ),
        "function": one_of(
            swap(r"\bka_{}(?=\()", ("max", "min")),
            swap(r"\bka_{}(?=\()", ("exp", "expm1", "log")),
            swap(r"\bka_{}(?=\()", ("tanh", "sigmoid", "erf")),
            swap(r"\bka_{}(?=\()", ("relu", "abs", "gelu", "silu", "gelu_tanh")),
            swap(r"\bka_{}(?=\()", ("sqrt", "rsqrt")),
        ),
        "reduction": swap(r"\bka::{}\b", ("sum", "max", "min", "prod")),
        "constant": one_of(
            in_code(r"(?<![\w.])(\d+\.\d*)f\b", _half),
            in_code(r" [+-] C\d+\b", ""),
            in_code(r"\bC(\d+)\b", lambda found: f"C{max(int(found[1]) - 1, 0)}"),
            in_code(r" [*/] (?:D\d+|C\d+)\b", ""),
        ),
        "index": one_of(
            in_code(r"(\bblockIdx\.[xyz]|\b\w) \* (?:\(int64_t\))?D\d+\b", r"\1"),
            in_code(r"\bD(\d+)\b", lambda found: f"D{max(int(found[1]) - 1, 0)}"),
        ),
        "operands": _exchanged,
        "lost_statement": _lost_lines(r"\s+\S.*(?:store|map_row|pointwise|a(?:\.|->)out\d).*;$"),
        "lost_step": _lost_step,
        "tail": one_of(in_head(r"(?<==)B\b", "B-1"), in_code(r"(\((?:a(?:\.|->)\w+|D\d+))(?=, \[)", r"\1 - 1")),
    },
    # What the first trained model did on held-out tasks.
    "model": {
        "channel": one_of(
            in_code(r"(?<=[\w)]) % (?=D\d)", " / "),
            in_code(r"(?<=[ijr]) / (?=D\d+[,;)])", " % "),
            in_code(r"\[[ijk]\]", "[0]"),
        ),
        "outputs": lambda source, random: _exchanged(source, random, ("out",)),
        "neighbour": _neighbour,
        "lost_operator": one_of(
            in_code(r"\bka_(?!get|put)\w+(?=\([^(),]*\))", ""),
            in_code(r" [-+*/] (?:[a-z]\w*|\d+\.\d*f)(?=[,;)])", ""),
            in_code(r"(?<=return )-(?=\w)", ""),
        ),
        "scratch_size": _scratch_size,
    },
}
#: What only kernels with a launch geometry can get wrong.
ON_CUDA: dict[str, dict[str, Edit]] = {
    "plan": {
        "threads": one_of(in_head(r"\bblock=\w+", "block=2048"), in_head(r"\bT=\d+", "T=2048")),
    },
    "wrong": {
        "grid": one_of(
            in_head(r"\bgrid=cdiv\(([^,()]+), ?", r"grid=cdiv(\1//2, "),
            in_head(r"\bgrid=B\b", "grid=1"),
            in_head(r" grid=(?:\([^)]*\)|\S+\([^)]*\)|\S+)", ""),
        ),
    },
}
