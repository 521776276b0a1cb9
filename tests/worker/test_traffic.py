"""How much of its operands a graph has to read."""

from __future__ import annotations

from kernel_assistant.worker.traffic import bytes_to_read


def node(name, op, args, shape, dtype="f32", **kwargs):
    return {"name": name, "op": op, "args": args, "kwargs": kwargs, "spec": {"dtype": dtype, "shape": shape}}


def graph(*nodes, outputs=()):
    return {"nodes": nodes, "outputs": list(outputs) or [nodes[-1]["name"]]}


def test_a_table_is_read_where_rows_are_taken():
    found = graph(node("n0", "embedding", ["%p0", "%x0"], ["B", "64"]), node("n1", "relu", ["%n0"], ["B", "64"]))
    assert bytes_to_read(found, "p0", 4 * 10000 * 64, {"B": 8}) == 8 * 64 * 4
    assert bytes_to_read(found, "x0", 8 * 8, {"B": 8}) == 64
    # Rows may come again: never more than there is.
    assert bytes_to_read(found, "p0", 4 * 5 * 64, {"B": 8}) == 4 * 5 * 64


def test_parts_add_up_and_any_other_reader_takes_all():
    halves = [node(f"n{i}", "slice.Tensor", ["%x0", 1, 32 * i, 32 * i + 32], ["B", "32"], "bf16") for i in (0, 1)]
    assert bytes_to_read(graph(*halves), "x0", 8 * 64 * 2, {"B": 8}) == 8 * 64 * 2
    assert bytes_to_read(graph(halves[0]), "x0", 8 * 64 * 2, {"B": 8}) == 8 * 32 * 2
    whole = node("n2", "mul.Tensor", ["%n0", "%x0"], ["B", "64"], "bf16")
    assert bytes_to_read(graph(halves[0], whole), "x0", 1024, {"B": 8}) == 1024
    assert bytes_to_read(graph(halves[0], outputs=["x0"]), "x0", 1024, {"B": 8}) == 1024
    stacked = node("n3", "cat", [["%x0", "%x1"]], ["B", "128"], "bf16")
    assert bytes_to_read(graph(halves[0], stacked), "x0", 1024, {"B": 8}) == 1024
    assert bytes_to_read(graph(node("n0", "gather", ["%x1", 1, "%x0"], ["B", "2"])), "x0", 1024, {"B": 8}) == 1024
