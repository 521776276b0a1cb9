"""Tests that a job waits for one import of a slow file: torch.compile's process and the one that times the edited file
import it while the search goes on."""

from __future__ import annotations

import sys

import pytest

from tests.common.modules import CHAIN

pytestmark = [pytest.mark.programs, pytest.mark.slow]

#: Waits at every later import until a candidate has been judged, which is never where the search waits for the import.
HEAD = """
import time
from pathlib import Path
HERE = Path(__file__).parent
STATE = Path({state!r})

def note(words):
    with open(HERE / "imports.txt", "a") as file:
        file.write(f"{{words}}\\n")

def judged():
    return any('"type":"candidate_evaluated"' in path.read_text() for path in STATE.rglob("events.jsonl"))

again = (HERE / "imports.txt").exists()
note(f"begun, judged: {{judged()}}")
until = time.monotonic() + 120
while again and not judged() and time.monotonic() < until:
    time.sleep(0.05)
time.sleep(1.2)
note(f"over, judged: {{judged()}}")
"""


def test_a_slow_file_is_imported_once_before_the_search_and_twice_beside_it(run, home, settings, scripted):
    path = home / "chain.py"
    head = HEAD.format(state=str(settings.state_dir))
    # On so many rows the kernel is much faster than eager, so that the edited file is timed.
    text = CHAIN.replace("torch.randn(32, 512)", "torch.randn(256, 512)")
    path.write_text(text.replace("import torch\n", f"import torch\n{head}", 1))
    run("optimize", path, "--json", "--budget", "240s", "--no-free-wins", "--python", sys.executable, code=0)
    first, over, *beside = (home / "imports.txt").read_text().splitlines()
    assert (first, over) == ("begun, judged: False", "over, judged: False")
    assert sorted(beside) == ["begun, judged: False"] * 2 + ["over, judged: True"] * 2
