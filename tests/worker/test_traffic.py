"""How much of its operands a graph has to read."""

from __future__ import annotations

from kernel_assistant.worker.traffic import elements_to_read


def value(name, shape, dtype="f32"):
    return {"name": name, "spec": {"dtype": dtype, "shape": shape}}


def node(name, op, args, shape, **kwargs):
    return {"name": name, "op": op, "args": args, "kwargs": kwargs, "spec": {"dtype": "f32", "shape": shape}}


def read(*nodes, outputs=(), **inputs):
    graph = {
        "inputs": [value(name, shape) for name, shape in inputs.items()],
        "nodes": nodes,
        "outputs": list(outputs) or [nodes[-1]["name"]],
    }
    return elements_to_read(graph, {"B": 8})


def test_a_table_is_read_where_rows_are_taken():
    taken = (node("n0", "embedding", ["%p0", "%x0"], ["B", "64"]), node("n1", "relu", ["%n0"], ["B", "64"]))
    found = read(*taken, p0=["10000", "64"], x0=["B"])
    assert (found["p0"], found["x0"]) == (8 * 64, 8)
    # Rows may come again: never more than there is.
    assert read(*taken, p0=["5", "64"], x0=["B"])["p0"] == 5 * 64


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
    assert read(node("n0", "gather", ["%x1", 1, "%x0"], ["B", "2"]), x1=["B", "9"], x0=["B", "2"])["x0"] == 16


def test_of_what_is_computed_and_then_cut_the_part_counts_too():
    nodes = (
        node("n0", "gt.Scalar", ["%x0", 0.25], ["B", "48", "9"]),
        node("n1", "_to_copy", ["%n0"], ["B", "48", "9"], dtype="f32"),
        node("n2", "maximum", ["%n1", "%x1"], ["B", "48", "9"]),
        node("n3", "mul.Tensor", ["%n2", "%p0"], ["B", "48", "9"]),
        node("n4", "slice.Tensor", ["%n3", 1, 0, 24], ["B", "24", "9"]),
    )
    found = read(*nodes, x0=["B", "48", "9"], x1=["B", "48", "9"], p0=["48", "1"])
    assert found["x0"] == found["x1"] == 8 * 24 * 9
    assert found["p0"] == 48
    # A sum over what was cut off needs it.
    summed = node("n5", "sum.dim_IntList", ["%n2", [1]], ["B", "9"])
    assert read(*nodes, summed, outputs=["n4", "n5"], x0=["B", "48", "9"], x1=["B", "48", "9"], p0=["48", "1"])[
        "x0"
    ] == (8 * 48 * 9)


def test_a_value_that_is_also_an_index_is_read_whole():
    found = read(node("n0", "index_select", ["%x0", 0, "%x0"], ["2"]), x0=["100"])
    assert found["x0"] == 100
