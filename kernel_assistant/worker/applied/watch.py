"""Checks at each call whether a module instance still has the attributes with which its kernels were verified.

A call reads the version tags of the instance's dictionaries (PEP 509, in CPython up to 3.12): each change of a
dictionary gives it a new tag. Other interpreters compare the identity of all values instead, which takes ten times as
long."""

from __future__ import annotations

import collections
import ctypes
import functools
import operator
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .attributes import freeze, is_atomic, is_state, may_change_in_place, same_attributes
from .layouts import LaunchersByLayout, ParameterLayouts

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = [getattr(torch.nn.modules.module, f"_global{name}") for name in _HOOKS]
_is = operator.is_
_value = operator.attrgetter("value")
#: Where a dictionary's version tag is: behind the header of the object and `ma_used`.
_TAG_OFFSET = object.__basicsize__ + ctypes.sizeof(ctypes.c_ssize_t)
#: One dictionary or list: itself, its length, a getter of the values that matter, these values.
Snapshot = tuple[Any, int, Callable[[Any], Any], tuple[Any, ...]]
#: Classes of dictionaries whose version tag shows every change of their content. Others may store content elsewhere.
_VERSIONED = (dict, collections.OrderedDict, collections.defaultdict)
#: The number of levels that `freeze` descends.
_DEPTH = 4


class InstanceVerdict:
    """Decides whether one module instance still fits the verified `attributes` (as `module_attributes` returns them).
    `paths` are the dotted names of the parameters and buffers that the kernels read; `shapes` are their verified
    shapes, by which an instance of another size is recognised quickly."""

    def __init__(
        self,
        module: torch.nn.Module,
        attributes: dict[str, dict[str, str]],
        paths: list[str],
        shapes: Sequence[Sequence[str]] = (),
    ) -> None:
        self.reference = weakref.ref(module)
        self.attributes = attributes
        self.paths = paths
        self.shapes = shapes
        self.layouts = ParameterLayouts()
        self.launchers: LaunchersByLayout[Any] = LaunchersByLayout()
        self._inspect()

    def reason(self) -> str:
        """Returns why the instance does not fit: "attributes", "hooks", "parameters" or "shape"; "" if it fits."""
        changed, hooked = self._containers.look()
        if changed:
            self._inspect()
            _, hooked = self._containers.look()
        if self._verdict:
            return self._verdict
        if hooked:
            return "hooks"
        for values, key, text in self._mutable:
            if freeze(values[key]) != text:
                return "attributes"
        return ""

    def tensors(self) -> list[Any]:
        """Returns the present parameters and buffers, in the order of `paths`. Valid only if `reason` returned ""
        before."""
        return [values[key] for values, key in self.sources]

    def _inspect(self) -> None:
        """Takes a new snapshot of the instance's dictionaries and lists, and compares everything with the verified
        attributes."""
        module = self.reference()
        assert module is not None
        children = [child for _, child in module.named_modules(remove_duplicate=False)]
        snapshots = [snapshot for child in children for snapshot in _snapshots(child)]
        hooks = [child.__dict__[name] for child in children[1:] for name in _HOOKS]
        if len(children) > 1:
            hooks += _GLOBAL_HOOKS
        self._mutable: list[tuple[dict[str, Any], str, str]] = []
        inside: dict[int, Snapshot] = {}
        for state in (child.__dict__ for child in children):
            for key, value in state.items():
                within = _inside(value, _DEPTH) if is_state(key) else []
                if within is None:
                    self._mutable.append((state, key, freeze(value)))
                inside.update((id(snapshot[0]), snapshot) for snapshot in within or ())
        self._containers = _Containers([*snapshots, *inside.values()], hooks)
        same = same_attributes(module, self.attributes)
        sources = [_source(module, path) for path in self.paths]
        self.sources = [source for source in sources if source is not None]
        self._verdict = "" if same else "attributes"
        if len(self.sources) != len(sources):
            self._verdict = "parameters"
        elif same and not all(map(_has_shape, self.tensors(), self.shapes)):
            self._verdict = "shape"


class _Containers:
    """Detects changes of the dictionaries and lists of a module and its submodules since `snapshots` of their values
    were taken, and forward hooks in the dictionaries `hooks`."""

    def __init__(self, snapshots: list[Snapshot], hooks: list[dict[int, Any]]) -> None:
        self._snapshots, self._hooks = snapshots, hooks
        self._others = [one for one in snapshots if type(one[0]) not in _VERSIONED]
        self._versions = versions_of([*(one[0] for one in snapshots if type(one[0]) in _VERSIONED), *hooks])
        #: Versions with which nothing was found changed, and whether there was a hook: one object, since other threads
        #: replace it.
        self._seen: tuple[list[int] | None, bool] = None, False

    def look(self) -> tuple[bool, bool]:
        """Returns two bools: whether a container now holds other values than when the snapshot was taken, and whether
        the module or a submodule has a hook."""
        if self._versions is None:
            return _differ(self._snapshots), any(self._hooks)
        # Read first, so that what another thread changes meanwhile is seen at the next call.
        versions, (seen, hooked) = self._versions(), self._seen
        if versions == seen:
            return _differ(self._others), hooked
        hooked = any(self._hooks)
        if _differ(self._snapshots):
            return True, hooked
        self._seen = versions, hooked
        return False, hooked


def _differ(snapshots: Iterable[Snapshot]) -> bool:
    try:
        return any(
            len(values) != size or not all(map(_is, getter(values), seen)) for values, size, getter, seen in snapshots
        )
    except (KeyError, IndexError):
        return True


def versions_of(dictionaries: Iterable[dict[Any, Any]]) -> Callable[[], list[int]] | None:
    """Returns a function that reads the version tags (PEP 509) of these dictionaries, which the caller must keep alive;
    None if this Python has no such tags."""
    if not _TAGGED:
        return None
    tags = [ctypes.c_uint64.from_address(id(one) + _TAG_OFFSET) for one in dictionaries]
    return lambda: list(map(_value, tags))


def _has_tags() -> bool:
    """Whether the dictionaries of this interpreter have version tags at the expected offset."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 13):
        return False

    class Probe:
        pass

    probe = Probe()
    probe.first, probe.second = 1, 2  # type: ignore[attr-defined]
    state = probe.__dict__
    tag = ctypes.c_uint64.from_address(id(state) + _TAG_OFFSET)
    seen = {tag.value, tag.value}
    steady = len(seen) == 1
    probe.first = 3  # type: ignore[attr-defined]
    seen.add(tag.value)
    state["third"] = 4
    seen.add(tag.value)
    del probe.second  # type: ignore[attr-defined]
    seen.add(tag.value)
    return steady and len(seen) == 4


_TAGGED = _has_tags()


def foreign_hooks(module: torch.nn.Module) -> bool:
    """Whether the module itself has forward hooks. The kernels replace whole modules, so they would not call the hooks
    of a submodule."""
    return any(module.__dict__[name] for name in _HOOKS)


def _has_shape(tensor: torch.Tensor, shape: Sequence[str]) -> bool:
    """Whether the tensor has the sizes that are numbers in `shape`; names match any size."""
    return len(shape) == tensor.dim() and all(
        not size.isdigit() or int(size) == actual for size, actual in zip(shape, tensor.shape, strict=True)
    )


def _snapshots(module: torch.nn.Module) -> Iterable[Snapshot]:
    state = module.__dict__
    keys = [key for key in state if is_state(key)]
    yield _snapshot(state, [*keys, "_parameters", "_buffers", "_modules", *_HOOKS])
    for name in ("_parameters", "_buffers", "_modules"):
        # The empty one of a module that TorchScript has compiled cannot be listed.
        if state[name] or isinstance(state[name], dict):
            yield _snapshot(state[name], list(state[name]))


def _inside(value: Any, depth: int) -> list[Snapshot] | None:
    """Returns snapshots of the containers in an attribute that can change in place, such as a configuration; None if a
    change inside it does not replace an object, as in an array. Descends at most `depth` levels."""
    if depth == 0 or is_atomic(value):
        return []
    if may_change_in_place(value):
        return None
    if isinstance(value, tuple):
        snapshots: list[Snapshot] = []
        items: list[Any] = list(value)
    elif isinstance(value, list):
        snapshots, items = [_snapshot(value, list(range(len(value))))], list(value)
    elif isinstance(value, dict):
        snapshots, items = [_snapshot(value, list(value))], list(value.values())
    elif isinstance(value, (set, frozenset, functools.partial)):
        return None
    else:
        # Read `__dict__` once: configurations have slow attribute access of their own.
        return _inside(getattr(value, "__dict__", {}), depth - 1)
    for item in items:
        inner = _inside(item, depth - 1)
        if inner is None:
            return None
        snapshots += inner
    return snapshots


def _snapshot(values: Any, keys: list[Any]) -> Snapshot:
    if not keys:
        return values, len(values), _nothing, ()
    # A getter of one key does not return a tuple: asking for it twice keeps the comparison uniform.
    getter = operator.itemgetter(*(keys if len(keys) > 1 else keys * 2))
    try:
        return values, len(values), getter, getter(values)
    except KeyError:
        return values, -1, getter, ()


def _nothing(_: Any) -> tuple[()]:
    return ()


def _source(module: torch.nn.Module, path: str) -> tuple[dict[str, Any], str] | None:
    """Returns the dictionary and the key that hold the tensor with the dotted name `path`; None if no dictionary holds
    it: a parametrised tensor, for example, is computed at each access."""
    *parents, name = path.split(".")
    for parent in parents:
        child = module._modules.get(parent)
        if child is None:
            return None
        module = child
    state = module.__dict__
    for values in (state["_parameters"], state["_buffers"], state):
        if isinstance(values.get(name), torch.Tensor):
            return values, name
    return None
