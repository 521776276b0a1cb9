"""The part of its operands that a graph has to read."""

from __future__ import annotations

import torch

from kernel_assistant.worker.measuring.traffic import Traffic, bytes_moved, count, parts_to_read
from kernel_assistant.worker.runner.pytorch.tensors import DTYPES
from kernel_assistant.worker.symbols import evaluate_size

DIMS = {"B": 8}


def value(name, shape, dtype="f32"):
    return {"name": name, "spec": {"dtype": dtype, "shape": shape}}


def node(name, op, args, shape, **kwargs):
    return {"name": name, "op": op, "args": args, "kwargs": kwargs, "spec": {"dtype": "f32", "shape": shape}}


def graph_of(*nodes, outputs=(), types=None, **inputs):
    return {
        "inputs": [value(name, shape, (types or {}).get(name, "f32")) for name, shape in inputs.items()],
        "nodes": nodes,
        "outputs": list(outputs) or [nodes[-1]["name"]],
    }


def drawn(graph):
    """Indices that are 0, 1, 2, …; booleans that are True in the first half."""
    found = {}
    for each in graph["inputs"]:
        shape = [evaluate_size(size, DIMS) for size in each["spec"]["shape"]]
        size = int(torch.Size(shape).numel())
        dtype = DTYPES[each["spec"]["dtype"]]
        flat = torch.arange(size) < size // 2 if dtype == torch.bool else torch.arange(size) % 5
        found[each["name"]] = flat.to(dtype).reshape(shape)
    return found


def read(*nodes, outputs=(), types=None, **inputs):
    graph = graph_of(*nodes, outputs=outputs, types=types, **inputs)
    given = drawn(graph)
    parts = parts_to_read(graph, DIMS, given)
    return {name: count(parts[name], tensor) if name in parts else 0 for name, tensor in given.items()}


def test_a_table_is_read_where_rows_are_taken():
    taken = (node("n0", "embedding", ["%p0", "%x0"], ["B", "64"]), node("n1", "relu", ["%n0"], ["B", "64"]))
    found = read(*taken, p0=["10000", "64"], x0=["B"], types={"x0": "i64"})
    # Rows 0 to 4, of which three come again.
    assert (found["p0"], found["x0"]) == (5 * 64, 8)


def test_parts_add_up_and_any_other_reader_takes_all():
    halves = [node(f"n{i}", "slice.Tensor", ["%x0", 1, 32 * i, 32 * i + 32], ["B", "32"]) for i in (0, 1)]
    x0 = ["B", "64"]
    assert read(*halves, outputs=["n0", "n1"], x0=x0)["x0"] == 8 * 64
    assert read(halves[0], x0=x0)["x0"] == 8 * 32
    whole = node("n2", "sum.dim_IntList", ["%x0", [1]], ["B"])
    assert read(halves[0], whole, outputs=["n0", "n2"], x0=x0)["x0"] == 8 * 64
    assert read(halves[0], outputs=["n0", "x0"], x0=x0)["x0"] == 8 * 64
    stacked = node("n3", "cat", [["%x0", "%x1"], 1], ["B", "128"])
    assert read(halves[0], stacked, outputs=["n0", "n3"], x0=x0, x1=x0)["x0"] == 8 * 64
    picked = node("n0", "gather", ["%x1", 1, "%x0"], ["B", "2"])
    assert read(picked, x1=["B", "9"], x0=["B", "2"], types={"x0": "i64"})["x0"] == 16
    of_itself = node("n0", "index_select", ["%x0", 0, "%x0"], ["100"])
    assert read(of_itself, x0=["100"], types={"x0": "i64"})["x0"] == 100
    assert read(node("n0", "narrow_copy", ["%x0", 1, 8, 16], ["B", "16"]), x0=x0)["x0"] == 8 * 16


def test_of_what_is_computed_and_then_cut_the_part_counts_too():
    shape = ["B", "48", "9"]
    nodes = (
        node("n0", "gt.Scalar", ["%x0", 0.25], shape),
        node("n1", "_to_copy", ["%n0"], shape, dtype="f32"),
        node("n2", "maximum", ["%n1", "%x1"], shape),
        node("n3", "mul.Tensor", ["%n2", "%p0"], shape),
        node("n4", "slice.Tensor", ["%n3", 1, 0, 24], ["B", "24", "9"]),
    )
    inputs = {"x0": shape, "x1": shape, "p0": ["48", "1"]}
    assert read(*nodes, **inputs) == {"x0": 8 * 24 * 9, "x1": 8 * 24 * 9, "p0": 24}
    # A sum over what was cut off needs it.
    summed = node("n5", "sum.dim_IntList", ["%n2", [1]], ["B", "9"])
    assert read(*nodes, summed, outputs=["n4", "n5"], **inputs)["x0"] == 8 * 48 * 9


def test_of_what_lends_its_shape_or_type_nothing_is_read():
    x0, x1, flat = ["B", "64"], ["B", "64"], ["8*B", "8"]
    cut = node("n1", "slice.Tensor", ["%n0", 1, 0, 4], ["B", "4"])
    assert read(node("n0", "type_as", ["%x0", "%x1"], x0), x0=x0, x1=x1) == {"x0": 512, "x1": 0}
    assert read(node("n0", "type_as", ["%x0", "%x1"], x0), cut, x0=x0, x1=x1) == {"x0": 8 * 4, "x1": 0}
    assert read(node("n0", "expand_as", ["%x0", "%x1"], x1), x0=["B", "1"], x1=x1) == {"x0": 8, "x1": 0}
    assert read(node("n0", "view_as", ["%x0", "%x1"], flat), x0=x0, x1=flat) == {"x0": 512, "x1": 0}
    narrow = node("n1", "slice.Tensor", ["%n0", 1, 0, 4], ["8*B", "4"])
    assert read(node("n0", "view_as", ["%x0", "%x1"], flat), narrow, x0=x0, x1=flat) == {"x0": 256, "x1": 0}
    # Of itself, too, it reads what it is made of.
    assert read(node("n0", "type_as", ["%x0", "%x0"], x0), x0=x0) == {"x0": 512}


def test_parts_that_overlap_count_once():
    cut = [node(f"n{i}", "slice.Tensor", ["%x0", 1, 8 * i, 8 * i + 40], ["B", "40"]) for i in (0, 1)]
    assert read(*cut, outputs=["n0", "n1"], x0=["B", "64"])["x0"] == 8 * 48


def test_windows_leave_gaps_and_the_end():
    gaps = node("n0", "max_pool2d", ["%x0", [2, 2], [4, 4]], ["B", "3", "8", "8"])
    assert read(gaps, x0=["B", "3", "32", "32"])["x0"] == 8 * 3 * 16 * 16
    dilated = node("n0", "max_pool1d", ["%x0", [2], [2], [0], [2]], ["B", "3", "3"])
    assert read(dilated, x0=["B", "3", "8"])["x0"] == 8 * 3 * 4
    end = node("n0", "avg_pool1d", ["%x0", [4], [4]], ["B", "3", "2"])
    assert read(end, x0=["B", "3", "11"])["x0"] == 8 * 3 * 8
    steps = node("n0", "conv2d", ["%x0", "%p0", None, [2, 2]], ["B", "4", "4", "4"])
    assert read(steps, x0=["B", "3", "8", "8"], p0=["4", "3", "1", "1"])["x0"] == 8 * 3 * 4 * 4


def test_a_part_is_followed_through_what_moves_elements():
    nodes = (
        node("n0", "pixel_shuffle", ["%x0", 2], ["B", "2", "8", "8"]),
        node("n1", "permute", ["%n0", [0, 2, 3, 1]], ["B", "8", "8", "2"]),
        node("n2", "flip", ["%n1", [1]], ["B", "8", "8", "2"]),
        node("n3", "slice.Tensor", ["%n2", 3, 0, 1], ["B", "8", "8", "1"]),
    )
    assert read(*nodes, x0=["B", "8", "4", "4"])["x0"] == 8 * 4 * 16


def test_a_norm_of_which_one_row_is_taken_reads_that_row():
    nodes = (
        node("n0", "layer_norm", ["%x0", [64], "%p0"], ["B", "50", "64"]),
        node("n1", "select.int", ["%n0", 1, 0], ["B", "64"]),
    )
    assert read(*nodes, x0=["B", "50", "64"], p0=["64"]) == {"x0": 8 * 64, "p0": 64}


def test_what_a_condition_does_not_take_is_not_read():
    chosen = node("n0", "where.ScalarOther", ["%x1", "%x0", 0.0], ["B", "64"])
    graph = graph_of(chosen, x0=["B", "64"], x1=["B", "1"], types={"x1": "b1"})
    assert read(chosen, x0=["B", "64"], x1=["B", "1"], types={"x1": "b1"}) == {"x0": 4 * 64, "x1": 8}
    given = drawn(graph)
    found = Traffic.of(graph, DIMS, given, {})
    assert found.changing_bytes == found.moved_bytes == 4 * 64 * 4 + 8


def test_memory_moves_whole_sectors():
    x = torch.zeros(4, 64)
    every_other = (torch.arange(64) % 2 == 0).expand(4, 64)
    assert count(every_other, x) == 4 * 32 and bytes_moved(every_other, x) == x.numel() * 4
    first = (torch.arange(64) == 0).expand(4, 64)
    assert bytes_moved(first, x) == 4 * 32 and bytes_moved(True, x) == 1024
