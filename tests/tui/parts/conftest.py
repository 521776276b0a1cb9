"""Every test of a part gets a terminal with UTF-8, whatever the locale of the run; tests may replace `utf8`."""

from __future__ import annotations

import pytest

from kernel_assistant_tui.widgets import glyphs


@pytest.fixture(autouse=True)
def utf8(monkeypatch):
    monkeypatch.setattr("kernel_assistant_tui.widgets.glyphs.draws_boxes", lambda: True)
    glyphs.utf8.cache_clear()
    yield True
    glyphs.utf8.cache_clear()
