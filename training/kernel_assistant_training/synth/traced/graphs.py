"""Reads the package's file of graphs that were traced from PyTorch's operators, alone or composed; `tasks/graphs.py`
makes it."""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

import msgspec

from kernel_assistant.records import OpGraph
from kernel_assistant.records.codec import Record
from kernel_assistant_training.synth.split import Split

FILE = Path(__file__).with_name("graphs.jsonl.xz")


class TracedGraph(Record, frozen=True, kw_only=True):
    """The graph of candidate `number` of the stream of compositions (`tasks/stream.py`), and its split. `operators` are
    the names of the PyTorch operators. `text`, the source of its module, is kept for held-out tasks alone."""

    number: int
    split: Split
    operators: tuple[str, ...]
    graph: OpGraph
    text: str = ""


@cache
def traced_graphs(split: Split) -> tuple[TracedGraph, ...]:
    """Returns the graphs of a split in the package's file, in the order of their numbers."""
    lines = lzma.decompress(FILE.read_bytes()).splitlines()
    every = (msgspec.json.decode(line, type=TracedGraph) for line in lines)
    return tuple(one for one in every if one.split == split)
