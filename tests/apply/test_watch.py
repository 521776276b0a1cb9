"""Tests changes to a module's attributes that the guard watches: configurations, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from kernel_assistant.worker.applied import watch
from kernel_assistant.worker.applied.attributes import module_attributes
from kernel_assistant.worker.applied.watch import InstanceVerdict


class Config:
    def __init__(self) -> None:
        self.eps = 1e-6
        self.act = "gelu"
        self.rope: dict[str, Any] = {"theta": 10000.0, "factors": [1.0, 2.0], "empty": {}}
        self.tags = {"a", "b"}


class Block(torch.nn.Module):
    def __init__(self, tags: bool) -> None:
        super().__init__()
        self.config = Config()
        if not tags:
            del self.config.tags
        self.sizes = (1, [2, 3])
        self.inner = torch.nn.Linear(2, 2)


CHANGES: dict[str, Callable[[Block], object]] = {
    "value": lambda block: setattr(block.config, "eps", 1e-5),
    "added": lambda block: setattr(block.config, "more", True),
    "removed": lambda block: delattr(block.config, "act"),
    "in a dict": lambda block: block.config.rope.update(theta=1.0),
    "in a list of a dict": lambda block: block.config.rope["factors"].append(3.0),
    "same length": lambda block: block.config.rope["factors"].reverse(),
    "in an empty dict": lambda block: block.config.rope["empty"].update(x=1),
    "in a list of a tuple": lambda block: block.sizes[1].pop(),
    "of a child": lambda block: setattr(block.inner, "in_features", 3),
    "first buffer of a child": lambda block: block.inner.register_buffer("mask", torch.ones(2)),
    "first child of a child": lambda block: block.inner.add_module("more", nn.Tanh()),
}


@pytest.fixture(params=["by version", "by identity"], autouse=True)
def how_dictionaries_are_watched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by identity":
        monkeypatch.setattr(watch, "versions_of", lambda dictionaries: None)


@pytest.mark.parametrize("tags", [False, True], ids=["watched by identity", "compared as text"])
@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_is_noticed(name: str, tags: bool) -> None:
    block = Block(tags)
    watched = InstanceVerdict(block, module_attributes(block), ["inner.weight"])
    assert watched.reason() == watched.reason() == ""
    CHANGES[name](block)
    assert watched.reason() == "attributes"


def test_a_set_is_noticed_and_equal_values_do_no_harm() -> None:
    block = Block(tags=True)
    watched = InstanceVerdict(block, module_attributes(block), ["inner.weight"])
    block.config.rope = {"theta": 10000.0, "factors": [1.0, 2.0], "empty": {}}
    assert watched.reason() == ""
    block.config.rope["factors"][0] = 5.0
    assert watched.reason() == "attributes"
    block.config.rope["factors"][0] = 1.0
    assert watched.reason() == ""
    block.config.tags.add("c")
    assert watched.reason() == "attributes"


def test_a_hook_of_a_child_is_noticed_until_it_is_removed() -> None:
    block = Block(tags=False)
    watched = InstanceVerdict(block, module_attributes(block), ["inner.weight"])
    assert watched.reason() == watched.reason() == ""
    for register in (block.inner.register_forward_hook, nn.modules.module.register_module_forward_pre_hook):
        handle = register(lambda *_: None)
        assert watched.reason() == watched.reason() == "hooks"
        handle.remove()
        assert watched.reason() == watched.reason() == ""


def test_a_hook_that_another_thread_registers_meanwhile_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    block = Block(tags=False)
    watched = InstanceVerdict(block, module_attributes(block), ["inner.weight"])
    differ, handles = watch._differ, list[Any]()

    def between(snapshots: Any) -> bool:
        if not handles:
            handles.append(block.inner.register_forward_hook(lambda *_: None))
        return differ(snapshots)

    monkeypatch.setattr(watch, "_differ", between)
    watched.reason()
    assert watched.reason() == watched.reason() == "hooks"
    handles[0].remove()
    assert watched.reason() == ""


def test_a_parameter_that_is_replaced_is_the_one_that_is_read() -> None:
    block = Block(tags=False)
    watched = InstanceVerdict(block, module_attributes(block), ["inner.weight"])
    assert watched.reason() == watched.reason() == ""
    block.inner.weight = nn.Parameter(torch.ones(2, 2))
    assert watched.reason() == ""
    assert watched.tensors() == [block.inner.weight]
    block.inner._parameters["weight"] = None
    assert watched.reason() != ""


def test_a_mark_that_a_library_left_on_the_verified_instance_alone_does_not_count() -> None:
    """transformers marks each module of a model it has initialised; an instance made by hand has no mark."""
    marked = Block(tags=False)
    marked.inner._is_initialised_by_a_library = True
    verified, block = module_attributes(marked), Block(tags=False)
    watched = InstanceVerdict(block, verified, ["inner.weight"])
    assert watched.reason() == ""
    block.inner._is_initialised_by_a_library = True
    assert watched.reason() == ""
    block.inner._is_initialised_by_a_library = False
    assert watched.reason() == "attributes"
    del block.sizes
    assert watched.reason() == "attributes"


def test_numbers_of_numpy_are_compared() -> None:
    """They may be part of the verified graph: `torch.from_numpy(self.scales)`."""
    block, other = Block(tags=False), Block(tags=False)
    for one, last in ((block, 3.0), (other, 4.0)):
        one.scales, one.factor = np.array([1.0, 2.0, last]), np.float64(last)
    verified = module_attributes(block)
    assert InstanceVerdict(other, verified, ["inner.weight"]).reason() == "attributes"
    watched = InstanceVerdict(block, verified, ["inner.weight"])
    assert watched.reason() == ""
    block.scales[0] = 5.0
    assert watched.reason() == "attributes"
    block.scales[0] = 1.0
    assert watched.reason() == ""
    block.factor = np.float64(5.0)
    assert watched.reason() == "attributes"


class Fallback(Block):
    _fast = False


def test_an_attribute_that_hides_one_of_the_class_counts_when_it_is_gone() -> None:
    block = Fallback(tags=False)
    block._fast = True
    watched = InstanceVerdict(block, module_attributes(block), ["inner.weight"])
    assert watched.reason() == ""
    del block._fast
    assert watched.reason() == "attributes"


@pytest.mark.parametrize(
    ("name", "counts"), [("_original_object_hash", False), ("_num_hashes", True), ("_hash_bits", True), ("_eps", True)]
)
def test_a_hash_that_an_object_keeps_does_not_count(name: str, counts: bool) -> None:
    """Each process has another one (GenerationConfig of transformers)."""
    block = Block(tags=False)
    setattr(block.config, name, 1)
    verified = module_attributes(block)
    setattr(block.config, name, 2)
    assert InstanceVerdict(block, verified, ["inner.weight"]).reason() == ("attributes" if counts else "")
