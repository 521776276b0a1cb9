"""Chooses schedules for an attention of few queries. CUDA only; see docs/language_models.md."""

from __future__ import annotations

from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.ir.sizes import mul, size_value
from kernel_assistant.generator.loops.attention import ShortAttention
from kernel_assistant.generator.print.cuda.templates.attention import Tile, possible
from kernel_assistant.generator.search.clusters import clusters_of
from kernel_assistant.records import OpGraph
from kernel_assistant.targets.base import DeviceFacts

#: Cycles of a launch, of each block of a cluster, of a step's loads, and of a row's arithmetic for a key.
ALWAYS, EACH_BLOCK, EACH_STEP, EACH_ROW = 2000, 40, 800, 60
#: Bytes that a multiprocessor reads in a cycle.
READ = 20


def possible_attentions(graph: OpGraph, attention: ShortAttention, device: DeviceFacts) -> list[tuple[float, Schedule]]:
    """Returns (estimated cycles, schedule) for all schedules whose kernels can be launched."""
    heads = size_value(mul(attention.k.sizes[0], attention.k.sizes[1]), graph.dims)
    keys = size_value(attention.k.sizes[2], graph.dims)
    return [
        (
            _cycles(tile, heads, keys, device),
            make("cuda", "attention", cluster=tile.cluster, unroll=tile.unroll, warps=tile.warps),
        )
        for tile in possible(attention, clusters_of(device))
    ]


def _cycles(tile: Tile, heads: int, keys: int, device: DeviceFacts) -> float:
    """Returns the estimated cycles of the kernel for `heads` key heads, counted over the whole batch, with `keys` keys
    each."""
    cores = max(device.cores, 1)
    blocks = heads * tile.cluster
    at_once = max(1, min(blocks, cores * tile.resident))
    steps = -(-keys // tile.step)
    arithmetic = tile.unroll * tile.rows * EACH_ROW
    # Warps of a multiprocessor wait for memory together and calculate one after another.
    beside = -(-at_once // cores) * tile.warps / 4
    bytes_read = 2 * keys * tile.width * tile.element / tile.cluster * -(-at_once // cores)
    wave = max(steps * (EACH_STEP + arithmetic * beside), bytes_read / READ)
    return -(-blocks // at_once) * (ALWAYS + EACH_BLOCK * tile.cluster * (tile.cluster > 1) + wave)
