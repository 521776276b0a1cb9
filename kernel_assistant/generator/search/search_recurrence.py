"""Chooses schedules for the steps of a recurrent layer. CUDA only; see docs/recurrent.md."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.ir.sizes import parse_size, size_value
from kernel_assistant.generator.loops.recurrence import Recurrence
from kernel_assistant.generator.print.cuda.templates.recurrence import Division, possible
from kernel_assistant.generator.search.clusters import clusters_of
from kernel_assistant.records import OpGraph
from kernel_assistant.records.graph import name_of
from kernel_assistant.targets.base import DeviceFacts

#: Cycles of a step beside its products: at all, for each block of the cluster, and for each batch element of a block.
#: With these the first guess takes 1.01 of the best one's time (geometric mean of eight layers on an H200, experiment
#: 164).
ALWAYS, EACH_BLOCK, EACH_ITEM = 300, 20, 300
#: Values that a multiprocessor multiplies, and bytes of shared memory that it reads, in a cycle.
MULTIPLIED, READ = 128, 128
#: Of so many multiprocessors 16 can have clusters at the same time.
AROUND_CLUSTERS = 22
#: Bytes of shared memory of a block where the device does not say.
LEAST_SHARED = 48 << 10


def possible_recurrences(graph: OpGraph, recurrence: Recurrence, device: DeviceFacts) -> list[tuple[float, Schedule]]:
    """Returns (estimated cycles for one step of the whole batch, schedule) for all schedules whose kernels can be
    launched. Raises Unsupported if there is none.
    """
    shape = graph.spec(name_of(recurrence.node.args[0])).shape
    count = size_value(parse_size(shape[0 if recurrence.batch_first else 1]), graph.dims)
    memory = device.shared_bytes_per_block or LEAST_SHARED
    fitting = [
        (_cycles(one, -(-count // one.batch) * recurrence.directions, device), _schedule(one))
        for one in possible(recurrence.hidden, recurrence.gates, clusters_of(device))
        if one.batch < 2 * count and one.shared + one.states <= memory
    ]
    if not fitting:
        raise Unsupported(f"a recurrent layer of {recurrence.hidden} hidden units on {device.arch}")
    return fitting


def _schedule(one: Division) -> Schedule:
    return make("cuda", "recurrence", batch=one.batch, cluster=one.cluster, held=one.held, lanes=one.lanes)


def _cycles(division: Division, clusters: int, device: DeviceFacts) -> float:
    """Returns the estimated cycles of one step of the whole batch, for which `clusters` clusters are launched."""
    cores, cluster = max(device.cores, 1), division.cluster
    most = cores * division.resident
    if cluster > 1:
        most = max(1, cores // AROUND_CLUSTERS * 16 * division.resident // cluster)
    at_once = min(clusters, most)
    states = division.units * division.width * division.batch
    products = max(states * division.gates / MULTIPLIED, (4 * states + division.shared) / READ)
    each = -(-at_once * cluster // cores) * (products + EACH_ITEM * division.batch)
    # Of equal ones the one with fewer batch elements.
    return -(-clusters // most) * (ALWAYS + EACH_BLOCK * cluster * (cluster > 1) + each) + division.batch
