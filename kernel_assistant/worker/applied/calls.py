"""Converts the arguments of a call of `forward` to a flat list of input tensors, and a list of output tensors to the
result.

A *tree* describes a nested argument or result as JSON: `{"input": name}` is a tensor, `{"const": text}` a plain value
as `freeze` writes it; containers are `{"tuple": [...]}`, `{"list": [...]}`, `{"dict": {...}}` and `{"object": {...}}`
(see `objects.py`). In a result, `{"output": index}` is a tensor and `{"value": ...}` a plain value."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .attributes import freeze
from .objects import Maker, check_form, class_name, is_named, parts_of

Tree = dict[str, Any]
Steps = list[tuple[int | str, Tree]]


class CallPattern:
    """Matches calls of `forward` with the call for which its kernels were verified,
    `{"args": [tree], "kwargs": {name: tree}}` (trees: see the module's docstring). A call matches if it passes tensors
    and equal plain values for the same parameters. `inputs` are the names of the tensors."""

    def __init__(self, forward: Callable[..., Any], call: dict[str, Any], inputs: list[str]) -> None:
        self._signature = inspect.signature(forward)
        self._inputs = inputs
        self._expected = self._bind(call["args"], call.get("kwargs", {}))
        self._forms: dict[object, Steps | None] = {}
        plain = [tree.get("input") for tree in call["args"]]
        #: Number of positional arguments if these are exactly the inputs, in order; otherwise -1.
        self.simple = len(plain) if plain == inputs and not call.get("kwargs") else -1

    def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """Returns the input tensors in the order of `inputs`, or None if the call does not match: it passes other
        parameters, other containers or other plain values."""
        if not kwargs and len(args) == self.simple:
            return args
        form = (len(args), *kwargs)
        if form not in self._forms:
            self._forms[form] = self._steps(len(args), list(kwargs))
        steps = self._forms[form]
        tensors_by_name: dict[str, Any] = {}
        if steps is None:
            return None
        for source, tree in steps:
            value = args[source] if isinstance(source, int) else kwargs[source]
            if not _gather(value, tree, tensors_by_name):
                return None
        return tuple(tensors_by_name[name] for name in self._inputs)

    def _bind(self, args: Any, kwargs: Any) -> dict[str, Any] | None:
        """Returns a dict from parameter to the value that it gets, or to `{"const": text}` for a default; None if the
        signature does not accept the arguments. The elements of `*args` get the names "*0", "*1", …; those of
        `**kwargs` keep their names."""
        try:
            bound = self._signature.bind(None, *args, **kwargs)
        except TypeError:
            return None
        arguments: dict[str, Any] = {}
        for parameter in list(self._signature.parameters.values())[1:]:
            if parameter.kind is parameter.VAR_POSITIONAL:
                arguments.update((f"*{i}", value) for i, value in enumerate(bound.arguments.get(parameter.name, ())))
            elif parameter.kind is parameter.VAR_KEYWORD:
                arguments.update(bound.arguments.get(parameter.name, {}))
            elif parameter.name in bound.arguments:
                arguments[parameter.name] = bound.arguments[parameter.name]
            else:
                arguments[parameter.name] = {"const": freeze(parameter.default)}
        return arguments

    def _steps(self, count: int, keywords: list[str]) -> Steps | None:
        """Returns, for calls with `count` positional arguments and these keywords, what has to be compared: pairs of an
        argument (its index or keyword) and the verified tree that it has to match. Returns None if no such call can
        match."""
        sources = self._bind(range(count), {name: name for name in keywords})
        if sources is None or self._expected is None or sources.keys() != self._expected.keys():
            return None
        steps: Steps = []
        for name, tree in self._expected.items():
            source = sources[name]
            if not isinstance(source, dict):
                steps.append((source, tree))
            elif source != tree:
                return None
        return steps


def _gather(value: Any, tree: Tree, tensors: dict[str, Any]) -> bool:
    if "input" in tree:
        tensors[tree["input"]] = value
        return True
    if "const" in tree:
        return freeze(value) == str(tree["const"])
    if "dict" in tree:
        items: dict[str, Tree] = tree["dict"]
        if type(value) is not dict or list(value) != list(items):
            return False
        return all(_gather(value[key], item, tensors) for key, item in items.items())
    if "object" in tree:
        named, taken = tree["object"], parts_of(value)
        if taken is None or not is_named(type(value), named) or list(taken[1]) != list(named["parts"]):
            return False
        return all(_gather(taken[1][name], item, tensors) for name, item in named["parts"].items())
    kind, items_ = ("tuple", tree["tuple"]) if "tuple" in tree else ("list", tree["list"])
    if type(value).__name__ != kind or len(value) != len(items_):
        return False
    return all(_gather(one, item, tensors) for one, item in zip(value, items_, strict=True))


def result_builder(tree: Tree, names: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Returns a function that turns the sequence of output tensors into the value that `forward` returns, as `tree`
    describes it. `names` are the globals of the user's module.

    Raises ImportError or AttributeError if a class of another module cannot be found.
    """
    if "output" in tree:
        index = tree["output"]
        return lambda outputs: outputs[index]  # torch.compile does not know how to trace an itemgetter
    if "value" in tree:
        value = tree["value"]
        return lambda outputs: value
    if "dict" in tree:
        inner = {key: result_builder(item, names) for key, item in tree["dict"].items()}
        return lambda outputs: {key: build(outputs) for key, build in inner.items()}
    if "object" in tree:
        make = Maker(tree["object"], names).make
        parts = {key: result_builder(item, names) for key, item in tree["object"]["parts"].items()}
        return lambda outputs: make({key: build(outputs) for key, build in parts.items()})
    items = [result_builder(item, names) for item in tree["tuple" if "tuple" in tree else "list"]]
    if "tuple" in tree:
        return lambda outputs: tuple([build(outputs) for build in items])
    return lambda outputs: [build(outputs) for build in items]


def describe_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[str], home: str = ""
) -> dict[str, Any]:
    """Returns the call `{"args": [tree], "kwargs": {name: tree}}` with these arguments; `inputs` names its tensors in
    pytree order.

    `home` is the name of the Python module that defines the user's class. Returns `{"problem": why}` if a tree cannot
    represent a container, or if there are more or fewer tensors than `inputs`."""
    names = iter(inputs)
    seen = _Description(lambda: {"input": next(names)}, lambda value: {"const": freeze(value)}, home, made_again=False)
    try:
        tree = seen.of((args, kwargs))
    except ValueError as error:
        return {"problem": f"an argument of forward: {error}"}
    if next(names, None) is not None:
        return {"problem": "an argument of forward: fewer tensors than inputs"}
    positional, keywords = tree["tuple"]
    return {"args": positional["tuple"], "kwargs": keywords["dict"]}


def describe_result(result: Any, home: str = "") -> Tree:
    """Returns the tree of `result`, the value that `forward` returned, with its tensors numbered in pytree order; or
    `{"problem": why}`. `home` is the name of the Python module that defines the user's class."""
    indices = itertools.count()
    seen = _Description(lambda: {"output": next(indices)}, lambda value: {"value": value}, home, made_again=True)
    try:
        return seen.of(result)
    except ValueError as error:
        return {"problem": f"the result of forward: {error}"}


@dataclass(frozen=True)
class _Description:
    """Builds trees of values. `tensor()` returns the tree of the next tensor, `plain(value)` that of a plain value.
    `home` is the name of the Python module that defines the user's class. With `made_again`, objects that cannot be
    rebuilt from their parts are refused."""

    tensor: Callable[[], Tree]
    plain: Callable[[Any], Tree]
    home: str
    made_again: bool

    def of(self, value: Any) -> Tree:
        """Returns the tree of a value. Raises ValueError if a tree cannot represent it."""
        if isinstance(value, torch.Tensor):
            try:
                return self.tensor()
            except StopIteration as error:
                raise ValueError("more tensors than names") from error
        if type(value) is dict:
            if not all(isinstance(key, str) for key in value):
                raise ValueError("a dict has keys that are not text")
            return {"dict": {key: self.of(item) for key, item in value.items()}}
        if type(value) in (tuple, list):
            return {type(value).__name__: [self.of(item) for item in value]}
        form_and_parts = parts_of(value)
        if form_and_parts is not None:
            return self._object(value, *form_and_parts)
        if isinstance(value, (tuple, list, dict)):
            raise ValueError(f"a {type(value).__qualname__} is neither a tuple, a list nor a dict")
        return self.plain(value)

    def _object(self, value: Any, form: str, parts: dict[str, Any]) -> Tree:
        if self.made_again:
            check_form(value, form, parts)
        trees = {name: self.of(item) for name, item in parts.items()}
        return {"object": {**class_name(type(value), self.home), "form": form, "parts": trees}}
