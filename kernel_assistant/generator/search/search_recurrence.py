"""Schedules for the steps of a recurrent layer. CUDA; docs/recurrent.md."""

from __future__ import annotations

from itertools import product

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.ir.sizes import parse_size, size_value
from kernel_assistant.generator.loops.recurrence import Recurrence
from kernel_assistant.generator.print.cuda.recurrence import Division
from kernel_assistant.records import OpGraph
from kernel_assistant.targets.base import DeviceFacts

CLUSTERS, ITEMS, LANES, HELD = (1, 2, 4, 8, 16), (1, 2, 4, 8), (4, 8, 16, 32), (4, 8, 12, 16, 20, 24, 32, 40)
#: Cycles of a step beside its products: at all, for each block of the cluster, and for each batch element of a block.
#: With these the first guess takes 1.01 of the best one's time (geometric mean of eight layers on an H200, experiment
#: 164).
ALWAYS, EACH_BLOCK, EACH_ITEM = 300, 20, 300
#: Values that a multiprocessor multiplies, and bytes of shared memory that it reads, in a cycle.
MULTIPLIED, READ = 128, 128
#: Of so many multiprocessors 16 can have clusters at the same time.
AROUND_CLUSTERS = 22
#: First guesses.
MOST = 12


def initial_recurrence(graph: OpGraph, found: Recurrence, device: DeviceFacts) -> list[Schedule]:
    """Schedules that can be launched, those with the shortest estimated time first. Raises Unsupported."""
    chosen = sorted(_possible(graph, found, device), key=lambda pair: pair[0])
    if not chosen:
        raise Unsupported(f"a recurrent layer of {found.hidden} hidden units on {device.arch}")
    return [schedule for _, schedule in chosen[:MOST]]


def neighbours_recurrence(graph: OpGraph, found: Recurrence, schedule: Schedule, device: DeviceFacts) -> list[Schedule]:
    """The possible schedules that differ in cluster, items or lanes."""
    names = ("cluster", "items", "lanes")
    return [
        other
        for _, other in _possible(graph, found, device)
        if sum(other[name] != schedule[name] for name in names) == 1
    ]


def _possible(graph: OpGraph, found: Recurrence, device: DeviceFacts) -> list[tuple[float, Schedule]]:
    """(estimated cycles of a step, schedule), each with as many weights in registers as there is room for."""
    shape = graph.spec(str(found.node.args[0])[1:]).shape
    batch = size_value(parse_size(shape[0 if found.batch_first else 1]), graph.dims)
    chosen = []
    for cluster, items, lanes in product(CLUSTERS, ITEMS, LANES):
        if (cluster > 1 and not _has_clusters(device)) or items >= 2 * batch:
            continue
        divisions = [Division(found.hidden, found.gates, cluster, items, lanes, held) for held in HELD]
        divisions = [one for one in divisions if _can_be_launched(one)]
        if divisions:
            division = next((one for one in divisions if not one.shared), divisions[-1])
            schedule = make("cuda", "recurrence", cluster=cluster, held=division.held, items=items, lanes=lanes)
            chosen.append((_cycles(division, -(-batch // items) * found.directions, device), schedule))
    return chosen


def _can_be_launched(division: Division) -> bool:
    try:
        division.check()
    except Unsupported:
        return False
    return True


def _has_clusters(device: DeviceFacts) -> bool:
    number = device.arch.removeprefix("sm_").rstrip("af")
    return number.isdigit() and int(number) >= 90


def _cycles(division: Division, clusters: int, device: DeviceFacts) -> float:
    """Cycles of a step of all batch elements, for which `clusters` clusters are launched."""
    cores, cluster = max(device.cores, 1), division.cluster
    most = cores * division.resident
    if cluster > 1:
        most = max(1, cores // AROUND_CLUSTERS * 16 * division.resident // cluster)
    at_once = min(clusters, most)
    states = division.units * division.width * division.items
    products = max(states * division.gates / MULTIPLIED, (4 * states + division.shared) / READ)
    each = -(-at_once * cluster // cores) * (products + EACH_ITEM * division.items)
    # Of equal ones the one with fewer batch elements.
    return -(-clusters // most) * (ALWAYS + EACH_BLOCK * cluster * (cluster > 1) + each) + division.items
