"""Defines Schedule: how the loops of a kernel are mapped to threads, registers and memory, as one line of text."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.records.codec import Record

#: Parameters of every form, with the values that they have where a line leaves them out.
FORMS: dict[str, dict[str, dict[str, int]]] = {
    "cpu": {
        "pointwise": {"nt": 0, "tile": 4096},
        "pointwise/blocked": {"tile": 32},
        "rows/keep": {"lanes": 64, "nt": 0},
        "rows/again": {"lanes": 64, "nt": 0},
        "rows/split": {"chunk": 65536, "lanes": 64, "nt": 0},
        "rows/across": {"nt": 0, "tile": 64},
        "scan/across": {"tile": 64},
        "cols/tile": {"nt": 0, "tile": 256},
        "cols/split": {"chunk": 4096, "nt": 0, "tile": 256},
        "scan/rows": {"lanes": 64, "nt": 0, "tile": 512},
        "scan/cols": {"chunk": 0, "nt": 0, "tile": 256},
        "window": {"stage": 0, "tile": 1024},
        "parts": {},
        "residual": {},
    },
    "cuda": {
        "pointwise": {"block": 256, "hint": 0, "unroll": 1, "vec": 4},
        "pointwise/transpose": {"block": 256, "put": 1, "tile": 32, "vec": 1},
        "rows/warp": {"block": 256, "hint": 0, "items": 1, "lanes": 32, "vec": 4},
        "rows/reg": {"block": 256, "cluster": 1, "hint": 0, "items": 1, "vec": 4},
        "rows/shared": {"block": 512, "cluster": 1, "hint": 0, "joint": 0, "stage": 0, "unroll": 2, "vec": 4},
        "rows/stream": {"block": 512, "cluster": 1, "hint": 0, "unroll": 2, "vec": 4},
        "rows/split": {"block": 512, "hint": 0, "join": 0, "parts": 64, "unroll": 2, "vec": 4},
        "rows/team": {"block": 512, "held": 0, "hint": 0, "parts": 16, "stage": 1, "unroll": 4, "vec": 4},
        "cols/reg": {"flat": 0, "hint": 0, "items": 16, "tx": 32, "ty": 4, "vec": 1},
        "cols/stream": {"flat": 0, "hint": 0, "tx": 32, "ty": 8, "unroll": 4, "vec": 1},
        "cols/split": {"hint": 0, "parts": 16, "tx": 32, "ty": 8, "unroll": 4, "vec": 1},
        "scan/rows": {"block": 256, "hint": 0, "items": 4, "vec": 4},
        "scan/split": {"block": 256, "hint": 0, "items": 4, "parts": 64, "vec": 4},
        "scan/thread": {"block": 128, "hint": 0, "vec": 4},
        "scan/cols": {"block": 128, "chunk": 0, "hint": 0, "join": 1024, "unroll": 8},
        "window/direct": {"block": 256, "rows": 1},
        "window/shared": {"block": 128, "rows": 1, "unroll": 1},
        "window/strip": {"block": 128, "rows": 1, "stage": 0, "strip": 4},
        "attention": {"cluster": 4, "unroll": 2, "warps": 4},
        "linears": {"stages": 0, "unroll": 4, "warps": 8},
        "recurrence": {"batch": 1, "cluster": 8, "held": 16, "lanes": 16},
        "parts": {},
        "library": {},
        "library/beside": {},
        "library/depthwise": {},
        "library/first": {},
        "library/split": {},
        "library/tf32": {},
        "residual": {},
    },
}


class Schedule(Record, frozen=True, kw_only=True):
    """The kernel family (`form`) for a target, and its parameters, sorted by name. Below, O, R and I are the outer,
    reduced and inner loops of a kernel.

    block: threads of a block; vec: elements of one vector access; put: elements of one vector store, where it differs
    from `vec`; items: vectors that a thread keeps in registers; unroll: vectors whose loads are in flight together;
    cluster: blocks that share a row; parts: pieces of a row or column; chunk: elements of such a piece (0: one piece);
    tx, ty: threads along I and along R; flat: 1 if the threads along I continue with the columns of the next row of O;
    tile, lanes (CPU): elements computed together; lanes (CUDA): threads of a warp that share a row; nt, hint: 1 for
    streaming stores and loads; joint: 1 if reductions that can share a pass do so; stage (CUDA): 1 for copies to shared
    memory before the first pass, or for windows that read their input through shared memory; join: 1 if a separate
    launch combines partial results, in `scan/cols` the number of threads that combine the totals of a column; rows,
    strip: outputs of a thread in neighbouring rows and at neighbouring positions; held: vectors that a thread keeps in
    registers instead of in shared memory.

    Of a recurrence: cluster: blocks that share a layer's hidden units; batch: elements of the batch that a cluster
    computes; lanes: threads that share a hidden unit; held: vectors of weights that a thread has in registers.

    Of an attention: cluster: blocks that share a head's keys; warps: warps of a block; unroll: keys that a thread loads
    ahead. Of linear layers of few rows: warps: warps of a block, which divide K; unroll: loads ahead of the products;
    stages: groups of `unroll` loads that shared memory holds, 0 for loads to registers.

    The form `parts` has no parameters, but one schedule for each part of the graph. Parts that a library computes have
    a form that begins with `library`, parts that PyTorch computes the form `residual`. `library/split` is a product of
    split operands, `library/first` a convolution that keeps channels first, `library/tf32` a product or convolution in
    TF32. If depthwise convolutions have channels last too, all convolutions by a library have the form
    `library/depthwise` if a library computes the depthwise ones, `library/beside` if kernels of the generator do.
    """

    target: str
    form: str
    params: tuple[tuple[str, int], ...]
    parts: tuple[Schedule, ...] = ()

    def __post_init__(self) -> None:
        known = FORMS.get(self.target, {}).get(self.form)
        if known is None:
            raise ValueError(f"no schedule {self.form!r} for target {self.target!r}")
        if [name for name, _ in self.params] != sorted(known):
            raise ValueError(f"{self.form} takes {', '.join(sorted(known))}")
        if any(value < 0 for _, value in self.params):
            raise ValueError("parameters of a schedule are not negative")
        if bool(self.parts) != (self.form == "parts"):
            raise ValueError("parts, and nothing else, has a schedule for each part")

    def __getitem__(self, name: str) -> int:
        for key, value in self.params:
            if key == name:
                return value
        raise KeyError(name)

    def text(self) -> str:
        """Returns the schedule as text, such as `rows/reg block=256 cluster=1 hint=0 items=2 vec=4`, or `part0: …;
        part1: …`"""
        if self.parts:
            return "; ".join(f"part{number}: {part.text()}" for number, part in enumerate(self.parts))
        return " ".join([self.form, *(f"{name}={value}" for name, value in self.params)])

    def having(self, **changes: int) -> Schedule:
        """Returns a copy with some parameters changed. Raises ValueError for a parameter that the form has not."""
        return make(self.target, self.form, **{**dict(self.params), **changes})

    def with_part(self, number: int, part: Schedule) -> Schedule:
        """Returns a copy in which part number `number` of the graph (one kernel's share) has the schedule `part`."""
        return in_parts(self.target, (*self.parts[:number], part, *self.parts[number + 1 :]))

    def settings(self) -> tuple[tuple[str, int], ...]:
        """Returns all parameters as (name, value). The names of parameters of part 1 begin with `part1.`, such as
        `part1.block`."""
        inside = [
            (f"part{number}.{name}", value) for number, part in enumerate(self.parts) for name, value in part.settings()
        ]
        return (*self.params, *inside)

    def forms(self) -> tuple[str, ...]:
        return (self.form, *(part.form for part in self.parts))


#: Characters of a schedule in a message.
MOST_SHOWN = 80


def make(target: str, form: str, **params: int) -> Schedule:
    """Makes a schedule; missing parameters get their defaults. Raises ValueError if the form or a parameter is
    unknown.
    """
    return Schedule(target=target, form=form, params=_with_defaults(target, form, params))


def _with_defaults(target: str, form: str, params: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted({**FORMS.get(target, {}).get(form, {}), **params}.items()))


def in_parts(target: str, parts: tuple[Schedule, ...]) -> Schedule:
    """Returns the schedule of a graph that several kernels compute; `parts` has the schedule of each kernel."""
    return Schedule(target=target, form="parts", params=(), parts=parts)


def read_schedule(target: str, line: str) -> Schedule:
    """Reads the text that `Schedule.text` returns; missing parameters get their defaults. Raises Unsupported for any
    other text."""
    if line.startswith("part0: "):
        items = line.split("; ")
        starts = [f"part{number}: " for number in range(len(items))]
        if not all(item.startswith(start) for item, start in zip(items, starts, strict=True)):
            raise Unsupported(f"schedule {line[:MOST_SHOWN]!r}: want part0: …; part1: …")
        return in_parts(target, tuple(read_schedule(target, item.partition(": ")[2]) for item in items))
    form, *items = line.split() or [""]
    try:
        params = {name: int(value) for name, _, value in (item.partition("=") for item in items)}
        return Schedule(target=target, form=form, params=_with_defaults(target, form, params))
    except ValueError as error:
        raise Unsupported(f"schedule {line[:MOST_SHOWN]!r}: {error}") from error
