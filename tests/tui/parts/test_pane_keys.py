"""Keys inside panes: one table, and everything that is made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant_tui.pane_keys import DEFAULT_KEYS, PANE_KEYS, bindings_of, pane_table
from kernel_assistant_tui.preferences import read_preferences
from kernel_assistant_tui.widgets.candidates import Candidates
from kernel_assistant_tui.widgets.episode import Episode
from kernel_assistant_tui.widgets.result import Result
from kernel_assistant_tui.widgets.training import Training
from tests.tui.parts.hosting import hosted

ROOT = Path(__file__).resolve().parents[3]
WIDGETS = {"episode": Episode, "result": Result, "candidates": Candidates, "training": Training}


def test_every_key_of_a_pane_is_its_own_and_does_something():
    assert {one.pane for one in PANE_KEYS} == set(WIDGETS)
    for pane, widget in WIDGETS.items():
        keys = [one.key for one in PANE_KEYS if one.pane == pane]
        assert len(set(keys)) == len(keys) == len(bindings_of(pane))
        for one in bindings_of(pane):
            assert hasattr(widget, f"action_{one.action.partition('(')[0]}")


def test_the_documentation_has_them():
    assert pane_table() in (ROOT / "docs/tui.md").read_text()


@pytest.mark.asyncio
async def test_the_users_keymap_counts_in_panes(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('[tui.keys]\nfind = "ctrl+f"\n')
    preferences = read_preferences(file)
    assert preferences.key("find") == "ctrl+f" and preferences.key("mark") == DEFAULT_KEYS["mark"] == "space"
    async with hosted(Episode(), (80, 24)) as (app, pilot):
        app.set_keymap(dict(preferences.keys))
        app.widget.lines.focus()
        await pilot.press("slash")
        assert app.focused is app.widget.lines
        await pilot.press("ctrl+f")
        assert app.focused is app.query_one("#episode-search")
