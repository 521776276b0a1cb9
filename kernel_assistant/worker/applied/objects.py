"""Converts containers whose class is not a plain tuple, list or dict to trees (JSON descriptions, see calls.py) and
back: named tuples, dataclasses, ordered dictionaries, outputs of transformers.

Their tree is `{"object": {"module": ..., "class": ..., "form": ..., "parts": {name: tree}}}`. `module` is "" for a
class of the module that defines the user's class, because that module may be imported under another name. `form` says
what the constructor takes: "keywords", "items" (one iterable of the parts) or "pairs" (one iterable of name and
part)."""

from __future__ import annotations

import collections
import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

Parts = dict[str, Any]


def parts_of(value: Any) -> tuple[str, Parts] | None:
    """Returns (form, parts by name in pytree order) of a container; `form` says how to rebuild it: "keywords", "items"
    or "pairs" (see the module's docstring). Returns None for any other value."""
    cls = type(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return "keywords", {name: getattr(value, name) for name in fields}
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return "items", dict(zip(cls._fields, value, strict=True))
    if isinstance(value, tuple) and cls.__module__ == "torch.return_types":
        return "items", {str(index): item for index, item in enumerate(value)}
    if cls is collections.OrderedDict and all(isinstance(key, str) for key in value):
        return "pairs", dict(value)
    return None


def check_form(value: Any, form: str, parts: Parts) -> None:
    """Raises ValueError unless an object of the class of `value`, rebuilt from `parts` in the way `form`, has the same
    parts. Rebuilding may fail, because constructors are user code."""
    cls = type(value)
    if "." in cls.__qualname__:
        raise ValueError(f"a {cls.__qualname__} cannot be found by its name")
    try:
        form_and_parts = parts_of(_put_together(cls, form, parts))
    except Exception as error:
        raise ValueError(f"a {cls.__qualname__} cannot be made of its parts: {error}") from error
    if (
        form_and_parts is None
        or form_and_parts[1].keys() != parts.keys()
        or any(form_and_parts[1][name] is not parts[name] for name in parts)
    ):
        raise ValueError(f"a {cls.__qualname__} made of its parts is another one")


def class_name(cls: type, home: str) -> dict[str, str]:
    """Returns the entries "module" and "class" of a tree that name a class; "module" is "" for a class of the module
    `home`, which defines the user's class."""
    return {"module": "" if cls.__module__ == home else cls.__module__, "class": cls.__qualname__}


def is_named(cls: type, named: dict[str, Any]) -> bool:
    return cls.__qualname__ == named["class"] and named["module"] in ("", cls.__module__)


class Maker:
    """Makes objects of the class that `named`, the "object" entry of a tree, describes. A class of another module is
    looked up at once (raises ImportError, AttributeError). A class of the user's own module is looked up in `names`,
    its globals, when the first object is made, because it may be defined further down in the file."""

    def __init__(self, named: dict[str, Any], names: Mapping[str, Any]) -> None:
        self._form, self._name, self._names = named["form"], named["class"], names
        self._cls: Any = getattr(importlib.import_module(named["module"]), self._name) if named["module"] else None

    def make(self, parts: Parts) -> Any:
        cls = self._names[self._name] if self._cls is None else self._cls
        return _put_together(cls, self._form, parts)


def _put_together(cls: Any, form: str, parts: Parts) -> Any:
    if form == "keywords":
        return cls(**parts)
    if form == "pairs":
        return cls(parts.items())
    return cls._make(parts.values()) if hasattr(cls, "_make") else cls(parts.values())
