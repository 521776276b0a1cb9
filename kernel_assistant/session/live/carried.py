"""Copies a class that was typed into a notebook or a prompt, with everything that it needs, into the text of a Python
module.

Classes and functions are copied as they were typed, as are imports that a cell contains; a name with a plain value
becomes an assignment of that value. The newest definition of each name is used, in whatever order the cells ran.
"""

from __future__ import annotations
import __future__

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant.session.live.cells import (
    MAIN,
    Definition,
    cells,
    class_definition,
    function_definition,
    main_names,
    where,
)
from kernel_assistant.source.one_line import import_of, plain_of
from kernel_assistant.source.uses import uses_of

_AS_ATTRIBUTE = "keep it in the module (a tensor as a buffer), or move it to a .py file and import it from there"
_AGAIN = "run the cell of the class again, then make the module anew"


@dataclass(frozen=True)
class _Obstacle:
    what: str
    next_step: str


def carried(class_name: str, others: Iterable[str], module_class: type) -> str:
    """Returns the text of a module that defines the classes and functions `class_name` and `others` of the session,
    with everything that they use.

    Names that only the `__init__` of a subclass of `module_class` uses may be missing, since the instances exist
    already. Raises a UsageError that names everything that cannot be copied.
    """
    carrier = _Carrier(main_names(), module_class)
    for name in dict.fromkeys((class_name, *sorted(others))):
        carrier.place(name, class_name)
    if carrier.obstacles:
        what = ", ".join(one.what for one in carrier.obstacles.values())
        first = next(iter(carrier.obstacles.values()))
        raise UsageError(f"{class_name} needs what cannot be carried out of {where()}: {what}", first.next_step)
    return carrier.text(class_name)


class _Carrier:
    def __init__(self, names: dict[str, Any], module_class: type) -> None:
        self._names = names
        self._module_class = module_class
        self._seen: dict[str, None] = {}
        self._head: dict[str, None] = {}
        self._body: list[str] = []
        self._left: dict[str, None] = {}
        self._futures = 0
        self.obstacles: dict[str, _Obstacle] = {}

    def text(self, class_name: str) -> str:
        futures = [
            one for one in __future__.all_feature_names if self._futures & getattr(__future__, one).compiler_flag
        ]
        left = [name for name in self._left if name not in self._seen]
        parts = [f"# {class_name}, out of {' '.join(where().split())}; written by kernel-assistant.\n"]
        parts += [f"from __future__ import {', '.join(futures)}\n"] if futures else []
        parts += ["\n".join(self._head) + "\n"] if self._head else []
        parts += [f"# Left behind, since only __init__ uses it: {', '.join(left)}\n"] if left else []
        return "\n".join([*parts, *(f"\n{one}" for one in self._body)])

    def place(self, name: str, user: str) -> None:
        """Adds the definition of `name` to the text, after everything that the definition needs when it runs. Skips
        builtins. `user` is the name whose definition uses `name`, for error messages."""
        if name in self._seen or name not in self._names:
            return
        self._seen[name] = None
        value = self._names[name]
        lines = import_of(name, value, self._cells)
        if lines:
            self._head |= dict.fromkeys(lines)
        elif (plain := plain_of(value)) is not None:
            self._body.append(f"{name} = {plain}\n")
        elif (own := self._other_name(name, value)) is not None:
            self.place(own, user)
            self._body.append(f"{name} = {own}\n")
        else:
            self._define(name, value, user)

    def _define(self, name: str, value: Any, user: str) -> None:
        is_class = isinstance(value, type)
        definition = class_definition(value) if is_class else function_definition(name, value)
        obstacle = self._obstacle(name, value, definition, user)
        if definition is None or obstacle is not None:
            self.obstacles[name] = obstacle or _Obstacle(name, _AS_ATTRIBUTE)
            return
        uses = uses_of(definition.text)
        self._futures |= definition.futures
        for one in uses.now:
            self.place(one, name)
        self._body.append(definition.text)
        for one in uses.later:
            self.place(one, name)
        for one in uses.building:
            if is_class and issubclass(value, self._module_class):
                self._place_if_possible(one, name)
            else:
                self.place(one, name)

    def _place_if_possible(self, name: str, user: str) -> None:
        attempt = copy(self)
        attempt._seen, attempt._head, attempt._body = dict(self._seen), dict(self._head), list(self._body)
        attempt._left, attempt.obstacles = dict(self._left), {}
        attempt.place(name, user)
        if attempt.obstacles:
            self._left[name] = None
        else:
            attempt.obstacles = self.obstacles
            vars(self).update(vars(attempt))

    def _obstacle(self, name: str, value: Any, definition: Definition | None, user: str) -> _Obstacle | None:
        """Returns why the definition of `name` cannot be copied, None if it can be copied."""
        if definition is None:
            if isinstance(value, (type, FunctionType)):
                return _Obstacle(f"{name} (its text is not kept)", "move it to a .py file and import it from there")
            return _Obstacle(f"{name} ({type(value).__name__}, used by {user})", _AS_ATTRIBUTE)
        if definition.changed:
            members = ", ".join(f"{name}.{one}" for one in definition.changed)
            return _Obstacle(
                f"{members} (changed after the cell of {name} ran)", f"write it into the class, and {_AGAIN}"
            )
        for base in value.__bases__ if isinstance(value, type) else ():
            if base.__module__ == MAIN and self._names.get(base.__name__) is not base:
                return _Obstacle(f"{name} (made of an earlier {base.__name__})", _AGAIN)
        return None

    def _other_name(self, name: str, value: Any) -> str | None:
        """Returns the name under which the session defined the class or function `value`, if `name` is only an
        alias."""
        own = getattr(value, "__name__", None) if isinstance(value, (type, FunctionType)) else None
        return own if own not in (None, name) and self._names.get(own) is value else None

    @cached_property
    def _cells(self) -> list[str]:
        return cells()
