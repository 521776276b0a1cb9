"""Plan expressions, compared with Python itself, and expressions that must never be evaluated."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant.worker.runner import plan as plans

FEW = settings(max_examples=200, deadline=None)
DIMS = {"B": 48, "N": 7, "K_1": 1}


def _operations(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner)
    calls = st.tuples(st.sampled_from(["cdiv", "min", "max"]), inner, inner)
    return st.one_of(
        binary.map(lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"),
        calls.map(lambda parts: f"{parts[0]}({parts[1]}, {parts[2]})"),
        inner.map(lambda part: f"-{part}"),
        inner.map(lambda part: f"({part})"),
    )


EXPRESSIONS = st.recursive(
    st.one_of(st.integers(0, 2**40).map(str), st.sampled_from(list(DIMS))), _operations, max_leaves=12
)


@FEW
@given(EXPRESSIONS)
def test_expressions_mean_what_python_means(text):
    names = {**DIMS, "cdiv": lambda a, b: -(-a // b), "min": min, "max": max, "__builtins__": {}}
    try:
        expected = eval(text, names)
    except ZeroDivisionError:
        with pytest.raises(plans.PlanError):
            plans.evaluate(text, DIMS)
    else:
        assert plans.evaluate(text, DIMS) == expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__",
        "B.bit_length()",
        "open('/etc/passwd')",
        "[B][0]",
        "{B: 1}",
        "(lambda: 1)()",
        "B if B else 1",
        "B and 1",
        "B < 2",
        "not B",
        "~B",
        "+B",
        "B ** 9",
        "B << 3",
        "B / 2",
        "1.5",
        "1e3",
        "True",
        "None",
        "'1'",
        "f'{B}'",
        "min(*[1, 2])",
        "min(1, 2, key=abs)",
        "min()",
        "min(B)",
        "cdiv(1)",
        "cdiv(1, 0)",
        "B // 0",
        "abs(B)",
        "min.__self__",
        "M",
        "B := 3",
        "B; B",
        "B\n+1",
        "\0",
        "",
        " ",
        "(" * 500 + "B" + ")" * 500,
        "-" * 5000 + "1",
        "9" * 5000,
        "B" + "+B" * 20_000,
    ],
)
def test_nothing_else_is_evaluated(text):
    with pytest.raises(plans.PlanError):
        plans.evaluate(text, DIMS)


@FEW
@given(st.text(max_size=60))
def test_any_text_is_an_integer_or_a_plan_error(text):
    try:
        assert type(plans.evaluate(text, DIMS)) is int
    except plans.PlanError:
        pass


@FEW
@given(st.lists(st.integers(0, 9), min_size=0, max_size=4), st.sampled_from(list(plans.DTYPE_BYTES)))
def test_sizes_of_contiguous_buffers(sizes, dtype):
    spec = {"name": "x", "dtype": dtype, "shape": [str(size) for size in sizes]}
    count = 1
    for size in sizes:
        count *= size
    assert plans.byte_size(spec, {}) == count * plans.DTYPE_BYTES[dtype]


def test_sizes_of_strided_buffers():
    spec = {"name": "x", "dtype": "f32", "shape": ["B", "3"], "strides": ["1", "B"]}
    assert plans.byte_size(spec, {"B": 5}) == 15 * 4
    assert plans.byte_size({**spec, "strides": ["8", "1"]}, {"B": 5}) == (4 * 8 + 2 + 1) * 4
    with pytest.raises(plans.PlanError, match="negative"):
        plans.byte_size({**spec, "shape": ["B-9", "3"]}, {"B": 5})


def test_launches_are_bound_in_the_order_of_the_struct():
    plan = {
        "dims": ["B"],
        "inputs": [{"name": "x0", "dtype": "f32", "shape": ["B"]}],
        "outputs": [{"name": "out0", "dtype": "f32", "shape": ["B"]}],
        "launches": [
            {
                "symbol": "f",
                "args": [["n", "B*2"], ["x", "x0"], ["o", "out0"]],
                "grid": ["cdiv(B, 32)", "1", "1"],
                "block": ["32", "1", "1"],
                "shared": "B*4",
            }
        ],
    }
    (launch,) = plans.bind_launches(plan, {"B": 100})
    assert (launch.words, launch.slots) == ([200, 0, 0], [(1, 0), (2, 1)])
    assert (launch.grid, launch.block, launch.shared) == ((4, 1, 1), (32, 1, 1), 400)
    assert ctypes.sizeof(ctypes.c_uint64 * len(launch.words)) == 24
    with pytest.raises(plans.PlanError, match="missing for B"):
        plans.bind_launches(plan, {"N": 1})
