"""Sizes while a graph is built: plain integers, with a large prime number in place of the free dimension B (the batch
size)."""

from __future__ import annotations

#: Represents the free dimension B: a prime so large that only sizes which contain B are multiples of it.
FREE = (1 << 61) - 1
Shape = tuple[int, ...]
Strides = tuple[int, ...] | None
_TEXTS: dict[int, str] = {}


def size_text(size: int) -> str:
    """Returns a size as the exporter writes it: `768`, `B`, `B*16`."""
    text = _TEXTS.get(size)
    if text is None:
        times, rest = divmod(size, FREE)
        text = str(size) if rest or not times else "B" if times == 1 else f"B*{times}"
        _TEXTS[size] = text
    return text


def literal(size: int) -> int | str:
    """Returns a size as an operand: a number, or an expression such as `B*16` if it contains B."""
    return size if size < FREE else size_text(size)


def rows_of(shape: Shape, dims: tuple[int, ...], keep: bool) -> Shape:
    """Returns the shape after a reduction over `dims`, which must not be negative. With `keep`, reduced dimensions have
    size 1."""
    if keep:
        return tuple(1 if dim in dims else size for dim, size in enumerate(shape))
    return tuple(size for dim, size in enumerate(shape) if dim not in dims)
