"""Forms of calls and symbolic sizes, as the guard of an applied package reads them."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch

from kernel_assistant.worker.applied.calls import CallPattern, describe_arguments, describe_result, result_builder
from kernel_assistant.worker.applied.sizes import ShapeMismatch, match_shapes
from kernel_assistant.worker.user_module.containers import known_to_pytree

A, B, C = (torch.full((1,), float(value)) for value in range(3))


class Options(dict[str, Any]):
    pass


def forward(self: object, x: Any, y: Any = None, *, scale: float = 1.0, flag: bool = False) -> None: ...


def pattern(*args: Any, **kwargs: Any) -> CallPattern:
    known_to_pytree((args, kwargs))
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    names = [f"x{index}" for index in range(len(tensors))]
    return CallPattern(forward, describe_arguments(args, kwargs, names), names)


def test_any_form_that_binds_alike_is_the_same_call() -> None:
    verified = pattern(A, y=B, scale=2.0)
    assert verified.tensors((A, B), {"scale": 2.0}) == (A, B)
    assert verified.tensors((), {"y": B, "scale": 2.0, "x": A}) == (A, B)
    assert verified.tensors((A, B), {"scale": 2.0, "flag": False}) == (A, B)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((A, B), {}),
        ((A, B), {"scale": 2}),
        ((A, B), {"scale": 2.0, "flag": True}),
        ((A,), {"scale": 2.0}),
        ((A, B, C), {"scale": 2.0}),
        ((A, B), {"scale": 2.0, "unknown": 1}),
    ],
)
def test_other_values_and_arguments_are_another_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    found = pattern(A, y=B, scale=2.0).tensors(args, kwargs)
    assert found is None or not all(isinstance(one, torch.Tensor) for one in found)


def test_an_optional_tensor_that_was_left_out_stays_out() -> None:
    assert pattern(A).tensors((A,), {}) == (A,)
    assert pattern(A).tensors((A, None), {}) == (A,)
    assert pattern(A).tensors((A, B), {}) is None


def test_containers() -> None:
    verified = pattern({"a": A, "b": [B, 3]}, (C,))
    assert verified.tensors(({"a": A, "b": [B, 3]}, (C,)), {}) == (A, B, C)
    assert verified.tensors(({"a": A, "b": [B, 4]}, (C,)), {}) is None
    assert verified.tensors(({"a": A, "b": (B, 3)}, (C,)), {}) is None
    assert verified.tensors(({"a": A}, (C,)), {}) is None
    assert "problem" in describe_arguments((Options(a=A),), {}, ["x0"])


class Pair(NamedTuple):
    first: torch.Tensor
    rest: Any


@dataclass
class Found:
    out: torch.Tensor
    extra: Any = None


@dataclass
class Counted:
    out: torch.Tensor
    count: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.out = self.out + 1


RESULTS = [
    A,
    (A,),
    [A, B],
    {"out": A, "rest": (B, None)},
    Pair(A, [B, Found(C)]),
    Found(A),
    Found(Pair(A, B), {"more": C}),
    OrderedDict(low=A, high=B),
    torch.sort(torch.tensor([2.0, 1.0])),
]


@pytest.mark.parametrize("home", ["", __name__])
@pytest.mark.parametrize("result", RESULTS)
def test_results_come_back_in_their_form(result: Any, home: str) -> None:
    known_to_pytree(result)
    outputs = [leaf for leaf in torch.utils._pytree.tree_leaves(result) if leaf is not None]
    tree = json.loads(json.dumps(describe_result(result, home)))
    again = result_builder(tree, globals())(outputs)
    assert str(again) == str(result) and type(again) is type(result)


def test_objects_that_cannot_be_made_again_are_refused() -> None:
    class Local(NamedTuple):
        out: torch.Tensor

    assert "cannot be found by its name" in describe_result(Local(A))["problem"]
    assert "is another one" in describe_result(Counted(A))["problem"]
    assert "keys that are not text" in describe_result({0: A})["problem"]


def test_objects_among_the_arguments() -> None:
    verified = pattern(Pair(A, 3), Found(B))
    assert verified.tensors((Pair(A, 3), Found(B)), {}) == (A, B)
    assert verified.tensors((Pair(A, 4), Found(B)), {}) is None
    assert verified.tensors((Pair(A, 3), Found(B, C)), {}) is None
    assert verified.tensors(((A, 3), Found(B)), {}) is None


def test_sizes_follow_from_shapes() -> None:
    assert match_shapes([("B", "64"), ("B*4", "T")], [(3, 64), (12, 5)]) == {"B": 3, "T": 5}
    assert match_shapes([("2*B+1", "8")], [(7, 8)]) == {"B": 3}
    assert match_shapes([("cdiv(B,4)", "B")], [(2, 5)]) == {"B": 5}


@pytest.mark.parametrize("shapes", [[(3, 65), (12, 5)], [(3, 64), (11, 5)], [(3, 64), (12,)]])
def test_other_shapes_do_not_match(shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(ShapeMismatch):
        match_shapes([("B", "64"), ("B*4", "T")], shapes)
