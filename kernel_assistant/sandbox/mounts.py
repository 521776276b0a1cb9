"""Computes the mounts that make a list of paths visible: the real folders, and the symbolic links that lead to them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kernel_assistant.errors import MissingError, SandboxError


@dataclass
class MountLayout:
    """Collects what must be mounted so that paths are visible. `add` may be called in any order. `binds` are (real
    path, writable); `links` maps link paths to targets; `roots` are folders that are visible already."""

    roots: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict)
    _binds: dict[str, bool] = field(default_factory=dict)

    def add(self, path: str, *, writable: bool = False) -> None:
        """Adds a path with all its links. Raises MissingError if the path does not exist, SandboxError if links form
        a cycle."""
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
        """Returns the binds without redundant ones, as (real path, writable). Parents come before the paths inside
        them, so that the narrower rule applies."""
        kept: dict[str, bool] = {}
        for path in sorted(self._binds, key=lambda path: path.count("/")):
            above = [kept[parent] for parent in parents(path) if parent in kept]
            in_root = any(inside(path, root) for root in self.roots)
            shown_as = above[0] if above else False if in_root else None
            if shown_as is None or shown_as != self._binds[path]:
                kept[path] = self._binds[path]
        return list(kept.items())

    def needed_links(self) -> list[tuple[str, str]]:
        """Returns (target, link path) of the links to create: those that are not inside a mounted folder."""
        shown = (*self.roots, *(path for path, _ in self.binds))
        return [(target, link) for link, target in self.links.items() if not any(inside(link, top) for top in shown)]


def first_link(path: str) -> str | None:
    """Returns the first component of an absolute path that is a symbolic link, None if there is none."""
    current = ""
    for part in path.strip("/").split("/"):
        current += f"/{part}"
        if os.path.islink(current):
            return current
    return None


def parents(path: str) -> list[str]:
    """Returns the parent folders of a path, nearest first."""
    folders = []
    while path != "/":
        path = os.path.dirname(path)
        folders.append(path)
    return folders


def inside(path: str, folder: str) -> bool:
    """Whether a path is the folder itself or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
