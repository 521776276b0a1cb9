"""Pages, dialogs, palette and mouse: everything that needs no job."""

from __future__ import annotations

import pytest

from kernel_assistant.config import resolve, user_file
from kernel_assistant_tui.preferences import read_preferences
from tests.tui.driving import opened, press, ready, shown, until, until_gone

pytestmark = pytest.mark.asyncio

PROGRAM = """
import torch
from model import Gate
gate = Gate()
with torch.no_grad():
    for _ in range(5):
        gate(torch.randn(8, 16))
"""


async def test_a_key_is_changed_on_the_settings_page_and_works_at_once(project):
    async with ready(project, "comma", sees="state_dir") as pilot:
        await pilot.press("end")
        while pilot.app.screen.query_one("#setting-rows").chosen.name != "tui.keys.help":
            await pilot.press("up")
        await pilot.press("enter", "ctrl+u", "f", "9", "enter")
        await until(pilot, lambda: read_preferences().keys == {"help": "f9"}, "state_dir")
        await press(pilot, "escape", sees=("f9 help", lambda: "state_dir" not in shown(pilot.app)))
        await press(pilot, "f9", sees=("Keys", "optimize the chosen class"))


async def test_a_value_that_does_not_fit_is_refused_on_the_page(project):
    async with ready(project, "comma", sees="state_dir") as pilot:
        while pilot.app.screen.query_one("#setting-rows").chosen.name != "budget":
            await pilot.press("down")
        await press(pilot, "enter", "ctrl+u", *"never", "enter", sees="budget = 'never' does not fit")
        assert not user_file().exists()
        await pilot.press("enter", "ctrl+u", *"7s", "enter")
        await until(pilot, lambda: resolve()[0].budget == 7.0, lambda: "does not fit" not in shown(pilot.app))


async def test_a_theme_is_chosen_in_the_palette_and_kept(project):
    async with ready(project, "ctrl+p", *"theme", sees="choose colours") as pilot:
        await press(pilot, "down", "enter", sees=lambda: "theme" not in shown(pilot.app).splitlines()[4])
        await press(pilot, *"nord", sees="nord")
        await pilot.press("down", "enter")
        await until(pilot, lambda: pilot.app.theme == "nord" and read_preferences().theme == "nord")
    async with opened(project) as pilot:
        assert pilot.app.theme == "nord"


async def test_the_palette_does_what_the_key_does(project):
    async with ready(project, "ctrl+p", *"histo", sees="with search (history)") as pilot:
        await press(pilot, "down", "enter", sees="nothing yet: choose a class and start")


async def test_what_cannot_be_done_says_why_by_key_and_in_the_palette(project):
    async with opened(project, size=(80, 24)) as pilot:
        await until(pilot, "Gate", "model.py:5")
        await press(pilot, "w", "w", sees="export: there are no kernels yet")
        assert len(pilot.app._notifications) == 1
        await press(pilot, "ctrl+p", *"exp", sees="not now: export: there are no")


async def test_a_sentence_behind_a_refused_line_does_nothing(project):
    async with ready(project) as pilot:
        await pilot.press("m", *"see vim start", "enter")
        await until(pilot, "message: no job is running here", "what is typed now is dropped")
        assert pilot.app.screen is pilot.app.main and not pilot.app.project.has_store
        # Enter has ended the sentence.
        await press(pilot, "o", sees="Optimize Gate (model.py:5)")


async def test_options_are_checked_before_anything_starts(project):
    async with ready(project, "o", sees=("Optimize Gate (model.py:5)", "< cpu >")) as pilot:
        await press(pilot, "tab", "ctrl+u", *"soon", "enter", sees="budget = 'soon' does not fit")
        await pilot.press("escape")
        await until_gone(pilot, "Optimize Gate")
        await press(pilot, "enter", sees="Optimize Gate (model.py:5)")
        # Enter is heard on the list of devices, too.
        await press(pilot, "tab", "ctrl+u", *"soon", "shift+tab", "enter", sees="budget = 'soon' does not fit")
        assert not pilot.app.project.has_store


async def test_what_is_typed_ahead_goes_where_it_is_meant(project):
    (project / "other.py").write_text((project / "model.py").read_text().replace("Gate", "Other"))
    async with opened(project) as pilot:
        await until(pilot, "Gate", "Other")
        # No pause between keys: each would start, cancel or quit something if it reached the list.
        for key in ("slash", *"otherxq"):
            pilot.app.simulate_key(key)
        await until(pilot, "No class has 'otherxq'")
        await press(pilot, "backspace", "backspace", "enter", sees="1 of 2")
        assert pilot.app.main.module.name == "Other"
        await pilot.press("escape")
        # An action is about the class that a key before it chose.
        await until(pilot, "Gate", "Other")
        await pilot.press("home")
        assert pilot.app.main.module.name == "Gate"
        for key in ("end", "o"):
            pilot.app.simulate_key(key)
        await until(pilot, "Optimize Other (")


async def test_the_mouse_reaches_list_tabs_and_footer(project):
    (project / "other.py").write_text((project / "model.py").read_text().replace("Gate", "Other"))
    async with opened(project) as pilot:
        await until(pilot, "Gate", "Other")
        await pilot.click("#module-rows", offset=(4, 1))
        assert pilot.app.main.module.name == "Other"
        lines = shown(pilot.app).splitlines()
        row = next(number for number, line in enumerate(lines) if "? help" in line)
        await pilot.click(offset=(lines[row].index("? help") + 2, row))
        await until(pilot, "optimize the chosen class")
        await pilot.click("#choice-back")
        await until_gone(pilot, "optimize the chosen class")
        await pilot.click("#tabs", offset=(3, 0))
        await until(pilot, "Which training run?", "No training run below the project")


@pytest.mark.programs
@pytest.mark.slow
async def test_a_run_is_chosen_from_a_list_or_by_its_folder(project, tmp_path):
    inside, outside = project / "runs" / "one", tmp_path / "elsewhere"
    for run, stage in ((inside, "sft"), (outside, "pretrain")):
        run.mkdir(parents=True)
        (run / "metrics.jsonl").write_text(f'{{"stage": "{stage}", "step": 1, "time": 1, "loss": 2.5}}\n')
    async with ready(project, "5", sees=("Which training run?", "runs/one", "1 of 1"), size=(130, 40)) as pilot:
        await pilot.press("enter")
        # Curves have the whole width: classes and results come back with their keys.
        await until(pilot, "loss  2.5", lambda: "3 result" not in shown(pilot.app))
        await press(pilot, "1", sees=("Gate", "3 result"))
        await press(pilot, "5", "5", sees="Which training run?")
        await pilot.press("shift+tab", *"nothing", "enter")
        await until(pilot, lambda: "is no run" in str(pilot.app.screen.query_one("#run-wrong").render()))
        await press(pilot, "ctrl+u", *str(outside), "enter", sees=("elsewhere", "loss  2.5"))


async def test_copying_takes_what_the_pane_says(project):
    async with ready(project) as pilot:
        await press(pilot, "y", sees=lambda: pilot.app.clipboard == f"{project / 'model.py'}:Gate")


async def test_an_unknown_setting_ends_it_before_it_begins(project):
    from kernel_assistant.errors import UsageError

    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text('[tui]\ntheme = "nrod"\n')
    with pytest.raises(UsageError, match="did you mean nord"):
        opened(project)


async def test_a_footer_whose_keys_do_nothing_below_a_dialog_is_not_seen(project):
    async with opened(project) as pilot:
        await until(pilot, "Gate", "? help")
        panes = pilot.app.main.query_one("#panes")
        before = panes.region
        for key, words in (("o", "Optimize Gate"), ("comma", "state_dir"), ("ctrl+p", "choose")):
            await press(pilot, key, sees=(words, lambda: "? help" not in shown(pilot.app)))
            assert panes.region == before
            await press(pilot, "escape", sees="? help")


async def test_the_file_of_keys_is_one_line_of_the_help(project, monkeypatch):
    path = f"/home/{'somebody with a long name/' * 4}config.toml"
    monkeypatch.setattr("kernel_assistant_tui.dialogs.help.user_file", lambda: path)
    async with ready(project, size=(80, 24)) as pilot:
        text = await press(pilot, "question_mark", sees=("table [tui] of this file.", path[-60:]))
        assert "~" in next(line for line in text.splitlines() if path[-60:] in line)
        await pilot.resize_terminal(190, 24)
        await until(pilot, path)


@pytest.mark.programs
@pytest.mark.slow
async def test_a_scan_ranks_the_classes(project):
    (project / "a_first.py").write_text((project / "model.py").read_text().replace("Gate", "Unused"))
    (project / "run.py").write_text(PROGRAM)
    async with opened(project) as pilot:
        await until(pilot, "Unused", "Gate")
        assert [one.name for one in pilot.app.main.query_one("#modules").all] == ["Unused", "Gate"]
        await press(pilot, "p", sees="Run a program")
        await press(pilot, "ctrl+u", *"python run.py", "enter", sees="1 Gate")
        assert [one.name for one in pilot.app.main.query_one("#modules").all] == ["Gate", "Unused"]
        assert pilot.app.main.scanning is None
