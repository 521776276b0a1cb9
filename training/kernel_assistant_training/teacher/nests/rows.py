"""Rows: reductions over the last dimensions and what is computed from them along the row, in one kernel."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from kernel_assistant.generator.ir.sizes import symbols_of
from kernel_assistant.records.graph import DTYPE_BYTES
from kernel_assistant_training.teacher.nests.rows_text import RowText, reads_once
from kernel_assistant_training.teacher.text.answer import Answer, Pieces, kernel
from kernel_assistant_training.teacher.text.lowering import FLOATS, Lowered
from kernel_assistant_training.teacher.text.sizes import NoForm

#: Columns up to which a warp holds a row, a block holds a row in its registers, and a thread of the CPU on its stack.
WARP, BLOCK, STACK = 1024, 32768, 16384
#: Elements of a row that a thread should have at most.
MOST_HELD = 32
#: Columns of float32 from which a small block is faster than a warp (measured on an H200).
HALF_WARP = 512
#: Most columns of a row that belongs to one thread.
MOST_ACROSS = 128
#: Most elements that one block reduces to a number; larger tensors are reduced in two steps.
MOST_WHOLE = 65536


def rows(lowered: Lowered, random: Random) -> list[Answer]:
    """Answers for a nest whose reductions run along rows. Raises NoForm for others."""
    nest, sizes = lowered.nest, lowered.sizes
    across = any(access.linear(nest.reduced) not in (0, 1, None) for access in lowered.accesses)
    name = "across" if across else "rows"
    count, columns = sizes.value(nest.size(nest.outer)), sizes.value(nest.size(nest.reduced))
    if not nest.outer and columns > MOST_WHOLE:
        raise NoForm("everything at once")
    free = any(name in lowered.task.graph.dims for name in symbols_of(nest.size(nest.reduced)))
    if lowered.target == "cpu":
        return [Answer(_pieces(lowered, RowText(lowered, held=not free and columns <= STACK)).source(), (name,))]
    written: dict[str, Pieces] = {}
    found = []
    forms = _across(count, columns, free, reads_once(nest)) if across else _forms(lowered, random, count, columns, free)
    for form, sets in forms:
        if form not in written:
            held = form in ("warp", "block", "held thread")
            threads = "1" if form.endswith("thread") else "32" if "warp" in form else "T"
            written[form] = _pieces(lowered, RowText(lowered, held=held, threads=threads))
        used = tuple(f"{name}={value}" for name, value in sets.items())
        found.append(Answer(replace(written[form], sets=used).source(), (name,)))
    return found


def _forms(lowered: Lowered, random: Random, count: int, columns: int, free: bool) -> list[tuple[str, dict[str, int]]]:
    """(warp | block | stream, constants), best guess first."""
    along = set(lowered.nest.reduced)
    moved = [access for access in lowered.accesses if access.buffer and along & set(access.index)]
    widths = [DTYPE_BYTES[access.dtype] for access in moved if access.dtype in FLOATS]
    vec = min(8, 16 // min(widths, default=4))
    once = reads_once(lowered.nest)
    found: list[tuple[str, dict[str, int]]] = []
    if not free and columns <= WARP and count > 1:
        width = max(1, min(vec, 1 << max(0, (columns // 32).bit_length() - 1)))
        found += [("warp", {"T": threads, "V": width}) for threads in (128, 256, 512)]
    if not free and columns <= BLOCK and not once and (columns > 256 or count == 1):
        blocks = [("block", sets) for sets in _block_sets(count, columns, vec)]
        found = [*blocks, *found] if columns > HALF_WARP and vec < 8 else [*found, *blocks]
    if not found or once:
        size = 0 if free or count == 1 else columns
        threads = (128, 256, 512) if 0 < size <= 2048 else (256, 512, 128) if 0 < size <= 8192 else (512, 1024, 256)
        threads = (1024, 512, 256) if count == 1 else threads
        own = [("stream", {"T": one, "V": vec}) for one in threads]
        found = [*found, *own] if found else own
    return [found[0], *random.sample(found[1:], len(found) - 1)]


def _across(count: int, columns: int, free: bool, once: bool) -> list[tuple[str, dict[str, int]]]:
    """Constants for one thread a row, whose elements are not neighbours in memory."""
    best = 256 if count >= 132 * 1024 else 64
    threads = (best, 128, 512 if best == 256 else 32)
    found = [("thread", {"T": one, "V": 4}) for one in threads]
    if not free and not once and columns <= MOST_ACROSS:
        found = [*(("held thread", {"T": one, "V": 4}) for one in threads[:2]), found[0]]
    return found


def _block_sets(count: int, columns: int, vec: int) -> list[dict[str, int]]:
    """Constants for a block a row. A thread has one to eight vectors, preferably four; with few rows there are more
    threads; none is idle."""
    wanted = 4 if count >= 2048 else 2 if count >= 512 else 1
    found = []
    for threads in (64, 128, 256, 512, 1024):
        items = -(-columns // (threads * vec))
        if items * vec <= MOST_HELD and (items > 1 or threads * vec < 2 * columns):
            idle = threads * vec * items / columns - 1
            found.append((abs(items - wanted) + 4 * idle, {"T": threads, "V": vec}))
    return [sets for _, sets in sorted(found, key=lambda one: one[0])]


def _pieces(lowered: Lowered, text: RowText) -> Pieces:
    body = text.body()
    sizes, nest = lowered.sizes, lowered.nest
    count = sizes.launch(nest.size(nest.outer))
    fields = [*lowered.buffers(), *([f"rows={count}"] if text.needs_rows else []), *sizes.free]
    launch = f"k0({', '.join(fields)})"
    if lowered.target == "cuda":
        grid = {"T": count, "32": f"cdiv({count},T//32)", "1": f"cdiv({count},T)"}[text.threads]
        launch += f" grid={grid} block=T"
    return Pieces((), (), (launch,), tuple(text.includes), kernel(lowered.target, "k0", body))
