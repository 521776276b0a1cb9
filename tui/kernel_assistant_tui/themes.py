"""Colours: two themes of our own besides those of Textual, and scroll bars for terminals without UTF-8."""

from __future__ import annotations

import os
from typing import ClassVar

from textual.scrollbar import ScrollBarRender
from textual.theme import BUILTIN_THEMES, Theme

DEFAULT = "kernel-dark"


def _bars(bar: str, ground: str) -> dict[str, str]:
    """Return theme variables for scroll bars in the colour `bar` on the background `ground`. The background of
    Textual's own scroll bars is nearly black."""
    grounds = ("scrollbar-background", "scrollbar-background-hover", "scrollbar-background-active")
    return {"scrollbar": bar, "scrollbar-corner-color": ground, **dict.fromkeys(grounds, ground)}


OWN = (
    Theme(
        name=DEFAULT,
        primary="#7aa2f7",
        secondary="#9ece6a",
        accent="#e0af68",
        warning="#e0af68",
        error="#f7768e",
        success="#9ece6a",
        foreground="#c8cee0",
        background="#16181d",
        surface="#1b1e25",
        panel="#262a33",
        dark=True,
        variables=_bars("#3d4454", "#1b1e25"),
    ),
    Theme(
        name="kernel-light",
        primary="#2f5fb3",
        secondary="#3f7a1f",
        accent="#8f5a00",
        warning="#8f5a00",
        error="#b3261e",
        success="#2f6f14",
        foreground="#1f2430",
        background="#fbfbfc",
        surface="#f2f3f6",
        panel="#e2e5ec",
        dark=False,
        variables=_bars("#b9c0ce", "#f2f3f6"),
    ),
)

NAMES = (*(theme.name for theme in OWN), *sorted(BUILTIN_THEMES))


def draws_boxes() -> bool:
    """Return whether the terminal can show more than ASCII, judged by the locale in the environment.

    Python itself sets LC_CTYPE to C.UTF-8 if the locale is C (PEP 538), so this value is ignored.
    """
    every, ctype, lang = (os.environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    if ctype == "C.UTF-8" and lang in ("", "C", "POSIX"):
        ctype = ""
    return (every or ctype or lang).lower().replace("-", "").endswith("utf8")


class AsciiBars(ScrollBarRender):
    """Scroll bars that consist of spaces only and are visible by their colour."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "] * 8
