"""From a list of paths to what must be mounted: the real folders, and the symbolic links that lead to them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kernel_assistant.errors import MissingError, SandboxError


@dataclass
class Layout:
    """Binds as (real path, writable), links as place → target. `add` in any order; read `binds` parents first."""

    roots: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict)
    _binds: dict[str, bool] = field(default_factory=dict)

    def add(self, path: str, *, writable: bool = False) -> None:
        """Follow the path link by link. Raises MissingError if it ends nowhere, SandboxError if it goes in circles."""
        current = os.path.normpath(path)
        for _ in range(40):
            link = first_link(current)
            if link is None:
                break
            target = os.readlink(link)
            self.links[link] = target
            rest = os.path.relpath(current, link)
            current = os.path.normpath(os.path.join(os.path.dirname(link), target, rest))
        else:
            raise SandboxError(f"too many symbolic links on the way of {path!r}")
        if current == "/":
            raise SandboxError(f"{path!r} would show the whole machine")
        if not os.path.lexists(current):
            raise MissingError(f"{path!r} does not exist", "create it, or leave it out")
        self._binds[current] = self._binds.get(current, False) or writable

    @property
    def binds(self) -> list[tuple[str, bool]]:
        """Parents come before what lies inside them, so that a narrower rule wins; what changes nothing is left out."""
        kept: dict[str, bool] = {}
        for path in sorted(self._binds, key=lambda path: path.count("/")):
            above = [kept[parent] for parent in parents(path) if parent in kept]
            in_root = any(inside(path, root) for root in self.roots)
            shown_as = above[0] if above else False if in_root else None
            if shown_as is None or shown_as != self._binds[path]:
                kept[path] = self._binds[path]
        return list(kept.items())

    def needed_links(self) -> list[tuple[str, str]]:
        """(target, place) of those links that do not already lie inside something bound."""
        shown = (*self.roots, *(path for path, _ in self.binds))
        return [(target, place) for place, target in self.links.items() if not any(inside(place, top) for top in shown)]


def first_link(path: str) -> str | None:
    """The first component of an absolute path that is a symbolic link."""
    current = ""
    for part in path.strip("/").split("/"):
        current += f"/{part}"
        if os.path.islink(current):
            return current
    return None


def parents(path: str) -> list[str]:
    """Nearest first, without the path itself."""
    found = []
    while path != "/":
        path = os.path.dirname(path)
        found.append(path)
    return found


def inside(path: str, folder: str) -> bool:
    """Equal, or below."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
