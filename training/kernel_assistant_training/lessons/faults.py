"""Inserts typical mistakes of kernel authors into the source of a correct answer. The functions have no side effects;
those with `source` and `random` return None if the mistake cannot be made.

`faulty` inserts a random mistake that the source allows. Only the environment decides which error the mistake leads to;
in some sources it has no effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from kernel_assistant_training.lessons.edits import Edit, in_code, in_head, one_of, swap

#: Probability that a kind is tried first; within a kind all faults are equally likely.
KINDS = {"compile": 0.35, "plan": 0.15, "wrong": 0.3, "model": 0.2}
_DECLARED = re.compile(r"\b(?:float|double|int|auto|int64_t) (\w+)(?= =|,|\)|\[)")
#: Scalars with the generator's names: where one is defined, and where one is used.
_NAME = r"(?:[ts](?:\d+(?:_\d+)*[a-z]*|_\w+)|[npxbw]\d+)"
_VALUE = re.compile(rf"\b(?:float|double|int64_t|bool) ({_NAME}|i|j)(?= =)")
_USED = re.compile(rf"(?<![\w.>])(?<!float )(?<!double )(?<!int64_t )(?<!bool ){_NAME}\b(?! =)")
_NAMES = ("scale", "sum", "mean", "total", "value", "inv", "row", "tmp")


@dataclass(frozen=True)
class FaultySource:
    """The source of a candidate with a deliberate mistake; `fault` is the name of the mistake."""

    source: str
    fault: str


def faulty(source: str, target: str, random: Random) -> FaultySource | None:
    """Returns `source` with one random mistake; None if no mistake of FAULTS and ON_CUDA applies to the source."""
    kinds = sorted(KINDS, key=lambda kind: random.random() ** (1 / KINDS[kind]), reverse=True)
    for kind in kinds:
        table = {**FAULTS[kind], **(ON_CUDA.get(kind, {}) if target == "cuda" else {})}
        for name in random.sample(list(table), len(table)):
            changed = table[name](source, random)
            if changed is not None:
                return FaultySource(changed, name)
    return None


def _undeclared(source: str, random: Random) -> str | None:
    """Replaces one use of a local name by a name that is not declared."""
    declared = set(_DECLARED.findall(source))
    other = [name for name in _NAMES if name not in declared]
    used = [
        in_code(rf"(?<![\w.>:&*] )(?<![\w.>:])\b{name}\b(?! =)(?=\s*[-+*/);.])", random.choice(other))
        for name in sorted(declared)
    ]
    return one_of(*used)(source, random) if used and other else None


def _other_syntax(source: str, random: Random) -> str | None:
    """Accesses the argument struct `a` with the syntax of the other target: `a.` (CUDA, where it is a value) becomes
    `a->` (CPU, where it is a pointer), or the other way round.
    """
    dot = len(re.findall(r"\ba\.\w", source)) > 0
    old, new = (r"\ba\.(?=\w)", "a->") if dot else (r"\ba->(?=\w)", "a.")
    return _everywhere(source, old, new)


def _wrong_header(source: str, random: Random) -> str | None:
    lines = source.split("\n")
    indices = [index for index, line in enumerate(lines) if line.startswith("#include") and "plan.h" not in line]
    if not indices:
        return None
    index = random.choice(indices)
    match = re.search(r'"(?:ka/)?(\w+)\.(cuh|h)"', lines[index])
    if match is None or random.random() < 0.3:
        del lines[index]
        return "\n".join(lines)
    name, suffix = match[1], match[2]
    wrong = random.choice(
        [f"{name[:-1]}.{suffix}", f"ka/{name}.{suffix}", f"{name}.{'h' if suffix == 'cuh' else 'cuh'}"]
    )
    lines[index] = f'#include "{wrong}"'
    return "\n".join(lines)


def _lost_field(source: str, random: Random) -> str | None:
    return in_head(r"(?<=\()\w+(?:=[^,()]*)?, (?=\w)|, \w+(?:=[^,()]*)?(?=[,)])", "")(source, random)


def _lost_lines(pattern: str) -> Edit:
    """Returns an edit that deletes one random line whose beginning matches the regular expression `pattern`."""

    def apply(source: str, random: Random) -> str | None:
        lines = source.split("\n")
        indices = [index for index, line in enumerate(lines) if re.match(pattern, line)]
        if not indices:
            return None
        del lines[random.choice(indices)]
        return "\n".join(lines)

    return apply


def _lost_step(source: str, random: Random) -> str | None:
    """Deletes one random launch line, if the source has several."""
    launches = [line for line in source.split("\n") if line.startswith("// launch:")]
    return _lost_lines("// launch:")(source, random) if len(launches) > 1 else None


def _exchanged(source: str, random: Random, of: tuple[str, ...] = ("x", "p", "b", "n")) -> str | None:
    """Exchanges two argument names that have the same prefix, wherever they are used. `of` lists the prefixes to choose
    from."""
    kinds = [kind for kind in of if len(set(re.findall(rf"\ba(?:\.|->)({kind}\d\w*)\b", source))) > 1]
    if not kinds:
        return None
    first, second = random.sample(sorted(set(re.findall(rf"\ba(?:\.|->)({random.choice(kinds)}\d\w*)\b", source))), 2)
    pattern = re.compile(rf"(\ba(?:\.|->))({first}|{second})\b")
    return pattern.sub(lambda match: match[1] + (second if match[2] == first else first), source)


def _neighbour(source: str, random: Random) -> str | None:
    """Replaces one use of a value by another value that is defined before it in the same kernel."""
    lines = source.split("\n")
    kernel, uses = 0, []
    for number, line in enumerate(lines):
        kernel = number if line.startswith('extern "C"') else kernel
        before = set(_VALUE.findall("\n".join(lines[kernel:number])))
        for match in _USED.finditer(line) if not line.lstrip().startswith(("//", "#")) else ():
            others = sorted(before - {match[0]})
            if others:
                uses.append((number, match, others))
    if not uses:
        return None
    number, match, others = random.choice(uses)
    line = lines[number]
    lines[number] = line[: match.start()] + random.choice(others) + line[match.end() :]
    return "\n".join(lines)


def _scratch_size(source: str, random: Random) -> str | None:
    """Drops one dimension from the size of a scratch buffer, or replaces it by another dimension."""
    lines = source.split("\n")
    matches = [
        (number, match)
        for number, line in enumerate(lines)
        if line.startswith("// scratch:")
        for match in re.finditer(r"(?<=[\w*)])(?:, |\*)(?:D(\d+)|\d+)(?=[\],*])", line)
    ]
    if not matches:
        return None
    number, match = random.choice(matches)
    new = (
        f"{match[0][: match[0].index('D')]}D{int(match[1]) - 1}"
        if match[1] and int(match[1]) and random.random() < 0.4
        else ""
    )
    lines[number] = lines[number][: match.start()] + new + lines[number][match.end() :]
    return "\n".join(lines)


def _everywhere(source: str, old: str, new: str) -> str | None:
    changed = re.sub(old, new, source)
    return changed if changed != source else None


def _half(match: re.Match[str]) -> str:
    return f"{float(match[1]) * 2 + 0.5:g}f"


FAULTS: dict[str, dict[str, Edit]] = {
    "compile": {
        "undeclared": _undeclared,
        "lost_semicolon": in_code(r"(?<=[\w)]);$", ""),
        "lost_bracket": in_code(r"\)(?=;$)|\}\)(?=;$)", ""),
        "other_syntax": _other_syntax,
        "unknown_member": in_code(r"\b(a(?:\.|->))([xpbn]\d\w*|out\d+)\b", r"\1in"),
        "unknown_function": one_of(
            in_code(r"\bka_(\w+)(?=\()", r"ka_\1f"),
            in_code(r"\bka_(sum|top|bottom|prod)\b", r"ka_\1s"),
            in_code(r"\bka_row_(load|store)(?=<)", r"ka_\1_row"),
            in_code(r"\bka_reduce(?=<)", "ka_reduction"),
        ),
        "type": one_of(
            in_code(r"\bconst float (\w+)(?= =)", r"const float* \1"),
            in_code(r"(?<=, )(\w+)\[", r"&\1["),
        ),
        "wrong_header": _wrong_header,
    },
    "plan": {
        "lost_field": _lost_field,
        "unknown_buffer": one_of(in_head(r"\bout\d+\b", "out"), in_head(r"(?<=[(, =])[xn](\d+)\b", r"in\1")),
        "unknown_size": one_of(in_head(r"(?<==)B\b", "N"), in_head(r"(?<==)D(\d+)\b", r"D\g<1>9")),
        "lost_launch": _lost_lines("// launch:"),
        "lost_scratch": _lost_lines("// scratch:"),
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
        "reduction": one_of(
            swap(r"\bka_{}(?=>)", ("sum", "top", "bottom", "prod")),
            in_code(r"(\br\w+(?:\[k\])?) \+= ", r"\1 = "),
            swap(r"\bka_fold_{}\b", ("sum", "max", "min", "prod")),
        ),
        "constant": one_of(
            in_code(r"(?<![\w.])(\d+\.\d*)f\b", _half),
            in_code(r" [+-] C\d+\b", ""),
            in_code(r"\bC(\d+)\b", lambda match: f"C{max(int(match[1]) - 1, 0)}"),
            in_code(r" [*/] (?:D\d+|C\d+)\b", ""),
        ),
        "index": one_of(
            in_code(r"(?:\(int64_t\))?\bD\d+ \* (?=\w|\()", ""),
            in_code(r"\bD(\d+)\b", lambda match: f"D{max(int(match[1]) - 1, 0)}"),
        ),
        "operands": _exchanged,
        "lost_statement": _lost_lines(r"\s+(?:\S.*)?\bka_(?:row_store|put)\b.*;$"),
        "lost_step": _lost_step,
        "tail": one_of(in_head(r"(?<==)B\b", "B-1"), in_code(r"(?<=[ce] )\+ k < R\b", "+ k < R - 1")),
    },
    # Mistakes of the first trained model on held-out tasks.
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
#: Faults that only kernels with a launch geometry can have.
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
