"""Results whose elements are moved: permuted, joined, cut, padded, repeated, gathered."""

from __future__ import annotations

import re
from random import Random

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import COMPUTE
from kernel_assistant.records.canonical import Canonical
from kernel_assistant_training.teacher.families.tiles import tiles
from kernel_assistant_training.teacher.moving.forms import KernelResult, has_choice, written
from kernel_assistant_training.teacher.moving.frame import (
    HALVES,
    Loops,
    is_home,
    lambda_text,
    loops_of_value,
    parameters,
    without_views,
)
from kernel_assistant_training.teacher.moving.gather_moves import GATHERS
from kernel_assistant_training.teacher.moving.moves import VIEWS
from kernel_assistant_training.teacher.moving.pull import Puller
from kernel_assistant_training.teacher.moving.rules import RULES
from kernel_assistant_training.teacher.text.answer import Answer, Pieces, joined
from kernel_assistant_training.teacher.text.expressions import ATOM
from kernel_assistant_training.teacher.text.named import Named
from kernel_assistant_training.teacher.text.sizes import NoForm
from kernel_assistant_training.teacher.text.terms import IndexTerm, Load, TermWriter, digits, flat, loads

#: Rows below this are no work for the threads of a warp; up to the second they are.
SHORT, WARP = 64, 1024
#: Least elements of a row on the CPU.
LEAST = 16
_PLAIN = VIEWS | set(
    "clone alias detach contiguous lift_fresh_copy identity dropout feature_dropout expand expand_as".split()
)


def answers(task: Canonical, target: str, random: Random) -> list[Answer]:
    """Sources with one kernel for each result. The first has the first form that fits each; the others have other
    schedules and forms."""
    operators = {node.op.partition(".")[0] for node in task.graph.nodes}
    if not operators & (set(RULES) - _PLAIN):
        return []
    try:
        named = Named(task, target)
        every = [_forms(_job(named, number, name)) for number, name in enumerate(named.graph.outputs)]
    except (Unsupported, NoForm):
        return []
    family = "gather" if operators & set(GATHERS) else "layout"
    found: dict[str, Answer] = {}
    for choice in range(max(map(len, every))):
        chosen = [forms[min(choice, len(forms) - 1)] for forms in every]
        source = _together([pieces for pieces, _ in chosen]).source()
        found.setdefault(source, Answer(source, tuple(dict.fromkeys(f"{family}-{form}" for _, form in chosen))))
    return list(found.values())


def _together(parts: list[Pieces]) -> Pieces:
    """Joins the kernels of a source. They share constants of one name; the first kernel decides the value."""
    whole = joined(parts)
    sets = dict(one.split("=") for one in reversed(whole.sets))
    names = dict.fromkeys(one.partition("=")[0] for one in whole.sets)
    shared = tuple(f"{name}={sets[name]}" for name in names)
    return Pieces(shared, whole.scratch, whole.launches, whole.includes, whole.code)


def _job(named: Named, number: int, name: str) -> KernelResult:
    puller, name = Puller(RULES, named), without_views(named, name)
    loops = loops_of_value(puller, name)
    if not loops.sizes:
        raise Unsupported("a single element")
    return KernelResult(named, number, puller.spec(name).dtype, loops, puller.value(name, loops.at))


def _forms(job: KernelResult) -> list[tuple[Pieces, str]]:
    """All forms of a result that fit, best guess first."""
    found: list[tuple[Pieces, str]] = []
    for form, name in ((tiles, "tiles"), (_rows, "rows"), (_elements, "elements")):
        found += [(pieces, name) for pieces in form(job)]
        if found and not job.cuda:
            break
    return found


# ---- Rows: loads follow memory along the last dimension, or do not depend on it.


def _rows(job: KernelResult) -> list[Pieces]:
    named, last = job.named, job.loops.letters[-1]
    count, every = job.loops.sizes[-1], loads(job.term)
    least = SHORT if job.cuda else LEAST
    if has_choice(job.term) or not isinstance(count, int) or count < least or len(job.loops.sizes) < 2:
        return []
    if len({COMPUTE[load.dtype] for load in every} | {COMPUTE[job.dtype]}) != 1:
        return []
    starts = [_start(load, last, named.size(count)) for load in every]
    if any(start is None for start in starts):
        return []
    names = parameters(every)
    along = [load for load, start in zip(every, starts, strict=True) if start]
    if not along:
        return []
    lines = [
        f"const {load.ctype} {names[id(load)]} = ka_get({_source(job, load)});" for load in every if load not in along
    ]
    pointers = [_pointer(job, load, start) for load, start in zip(every, starts, strict=True) if start]
    arguments = [(load.ctype, names[id(load)]) for load in along]
    function = lambda_text(job.term, arguments, names, captures=len(along) < len(every))
    width = named.size(count)
    call = f"{width}, {function}, {job.out} + r * {width}, {', '.join(pointers)});"
    whole = flat(job.loops.places[:-1], tuple(map(named.size, job.loops.sizes[:-1]))).text
    call, lines = call.replace(f"[{whole}]", "[r]"), [line.replace(f"[{whole}]", "[r]") for line in lines]
    index = _indices(job, "\n".join([*lines, call]))
    header = "ka/index" if "ka::at(" in call + "".join(lines) else ""
    rows = named.product(list(job.loops.sizes[:-1]), "")
    if not job.cuda:
        inside = [*index, *lines, f"ka::map_row({call}"]
        body = [f"ka::rows(a->rows, {width}, [=](int64_t r) {{"]
        body += [*("  " + part for line in inside for part in line.split("\n")), "});"]
        return [_with(written(job, "", "", "ka/rows.h", body, rows), header and header + ".h")]
    lanes = 8 if job.dtype in HALVES else 4 if job.dtype in ("f32", "i32") else 2
    ctype = COMPUTE[job.dtype]
    kind = "V" if ctype == "float" else f"V, {ctype}"
    if count <= WARP:
        body = ["const int64_t r = blockIdx.x * (T / 32) + threadIdx.x / 32;", "if (r >= a.rows) return;"]
        body += [*index, *lines, f"ka::map_row<32, {kind}>({call}"]
        threads, geometry = [256, 128], f"grid=cdiv({rows},T//32) block=T"
        while lanes > 1 and 32 * lanes > count:
            lanes //= 2
    else:
        body = ["const int64_t r = blockIdx.x;", *index, *lines, f"ka::map_row<T, {kind}>({call}"]
        best = min(512, max(64, 1 << ((count // lanes - 1).bit_length() - 1)))
        threads, geometry = list(dict.fromkeys((best, 256, 128))), f"grid={rows} block=T"
    made = [written(job, f"T={one} V={lanes}", geometry, "ka/rows.cuh", body, rows) for one in threads]
    return [_with(pieces, header and header + ".cuh") for pieces in made]


def _with(pieces: Pieces, header: str) -> Pieces:
    if not header:
        return pieces
    return Pieces(pieces.sets, pieces.scratch, pieces.launches, (header, *pieces.includes), pieces.code)


def _start(load: Load, last: str, width: str) -> str | None:
    """Where in its row a load begins. "" if it reads one number for each row, None if it does not follow the row."""
    using = [place for place in load.at if last in place.uses]
    if not using:
        return ""
    if using != [load.at[-1]]:
        return None
    text = load.at[-1].text
    if text == last:
        return "0"
    return text.removeprefix(f"{last} + ") if text.startswith(f"{last} + ") and text.count(last) == 1 else None


def _source(job: KernelResult, load: Load) -> str:
    return f"{job.named.prefix}{load.buffer}[{flat(load.at, load.sizes).text}]"


def _pointer(job: KernelResult, load: Load, start: str | None) -> str:
    above = Load(load.buffer, load.dtype, load.ctype, load.at[:-1], load.sizes[:-1])
    outer = Loops((), job.loops.letters[:-1], job.loops.sizes[:-1])
    place = IndexTerm("r") if is_home(above, outer, job.named) else flat(above.at, above.sizes)
    parts = [job.named.prefix + load.buffer]
    if place.text != "0":
        tight = place.text.isidentifier() or place.level == ATOM
        text = place.text if tight else f"({place.text})"
        parts.append(f"{text} * {load.sizes[-1]}")
    return " + ".join([*parts, *([start] if start and start != "0" else [])])


def _indices(job: KernelResult, text: str) -> list[str]:
    """Declarations that compute the loop variables used in `text` from the number of the row."""
    sizes = tuple(map(job.named.size, job.loops.sizes[:-1]))
    if len(sizes) == 1:
        return [f"const int64_t {job.loops.letters[0]} = r;"] if _uses(text, job.loops.letters[0]) else []
    parts = digits(IndexTerm("r"), sizes)
    found = [
        f"{letter} = {place.text}"
        for letter, place in zip(job.loops.letters, parts, strict=False)
        if _uses(text, letter)
    ]
    return [f"const int64_t {', '.join(found)};"] if found else []


def _uses(text: str, letter: str) -> bool:
    return re.search(rf"\b{letter}\b", text) is not None


# ---- Elements: any other layout.


def _elements(job: KernelResult) -> list[Pieces]:
    named = job.named

    def read(load: Load) -> str:
        text = _source(job, load)
        return f"ka_get({text})" if load.dtype in HALVES else text

    lines, value = TermWriter(read).written(job.term)
    head = f"[=]({', '.join(f'int64_t {letter}' for letter in job.loops.letters)})"
    if lines:
        function = "\n  ".join([f"{head} {{", *lines, f"return {value};"]) + "\n}"
    else:
        function = f"{head} {{ return {value}; }}"
    sizes = ", ".join(map(named.size, job.loops.sizes))
    if not job.cuda:
        return [written(job, "", "", "ka/index.h", [f"ka::fill({job.out}, {function}, {sizes});"])]
    total = named.product(list(job.loops.sizes), "")
    found = []
    vector = ", 2" if job.dtype in HALVES else ""
    each = "T*I*2" if vector else "T*I"
    for items in (4, 2, 8):
        body = [f"ka::fill<I{vector}>({job.out}, {function}, {sizes});"]
        sets, geometry = f"T=256 I={items}", f"grid=cdiv({total},{each}) block=T"
        found.append(written(job, sets, geometry, "ka/index.cuh", body))
    return found
