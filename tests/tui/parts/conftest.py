"""Every test of a part gets a terminal with UTF-8, whatever the locale of the run, unless it replaces `draws_boxes`."""

from __future__ import annotations

import pytest

from kernel_assistant_tui.widgets import glyphs


@pytest.fixture
def draws_boxes():
    return True


@pytest.fixture(autouse=True)
def utf8(draws_boxes, monkeypatch):
    monkeypatch.setattr("kernel_assistant_tui.widgets.glyphs.draws_boxes", lambda: draws_boxes)
    glyphs.utf8.cache_clear()
    yield draws_boxes
    glyphs.utf8.cache_clear()
