"""Computes from a task alone to which split of the data it belongs: training, one of the held-out splits, or
excluded."""

from __future__ import annotations

from typing import Literal

from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import Canonical
from kernel_assistant.records.graph import references
from kernel_assistant_training.synth.digests import kernelbench

Split = Literal["train", "held_out", "held_pairs", "held_families", "excluded"]
#: The share of canonical keys that are held out.
HELD_OUT = 0.02
#: Operators that are withheld from training: running products, pooling in one dimension.
FAMILIES = frozenset(
    {
        "cumprod",
        "max_pool1d",
        "max_pool1d_with_indices",
        "avg_pool1d",
        "adaptive_max_pool1d",
        "adaptive_avg_pool1d",
    }
)
#: Pairs of producer and direct consumer that are withheld from training.
PAIRS = frozenset(
    {
        ("gelu", "softmax"),
        ("silu", "layer_norm"),
        ("tanh", "cumsum"),
        ("sigmoid", "amax"),
        ("relu", "avg_pool2d"),
        ("layer_norm", "gelu"),
        ("max_pool2d", "hardswish"),
        ("softmax", "argmax"),
        ("log_softmax", "mean"),
        ("cumsum", "tanh"),
        ("group_norm", "mish"),
        ("embedding", "tanh"),
        ("softplus", "sum"),
        ("leaky_relu", "logsumexp"),
        ("rms_norm", "sigmoid"),
    }
)


def split(task: Canonical) -> Split:
    """Returns the split of a task: the first that applies of excluded (repeats a problem of KernelBench), held_families
    and held_pairs (has withheld operators or pairs of operators), held_out (2% of all keys), train."""
    return split_of(task.concrete(), task.key())


def split_of(graph: OpGraph, key: str) -> Split:
    """Returns the split of a task, as `split` does, from its graph with concrete sizes and its canonical key."""
    if kernelbench().repeats(graph):
        return "excluded"
    names = {node.name: node.op.partition(".")[0] for node in graph.nodes}
    if not FAMILIES.isdisjoint(names.values()):
        return "held_families"
    for node in graph.nodes:
        own = names[node.name]
        if any((names.get(read), own) in PAIRS for read in references(node)):
            return "held_pairs"
    return "held_out" if int(key[:8], 16) < HELD_OUT * (1 << 32) else "train"
