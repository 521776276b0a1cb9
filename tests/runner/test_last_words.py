"""A runner that prints much does not block, and its last lines are kept."""

from __future__ import annotations

import subprocess
import sys

from kernel_assistant.worker.running.runner_client import MOST_WORDS, OutputTail

#: More than a pipe holds.
LOUD = """
import sys
for number in range(20_000):
    print("warning", number, file=sys.stderr)
print("the end", file=sys.stderr)
"""


def _words(program: str) -> tuple[int, str]:
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    assert process.stderr is not None
    words = OutputTail(process.stderr)
    return process.wait(60), words.text()


def test_a_loud_process_ends_and_the_end_of_what_it_said_is_kept() -> None:
    code, said = _words(LOUD)
    assert code == 0
    assert said.endswith("warning 19999\nthe end\n") and len(said) == MOST_WORDS


def test_a_silent_process_has_said_nothing() -> None:
    assert _words("") == (0, "")


def test_a_child_that_goes_on_does_not_hold_up_who_asks() -> None:
    code, said = _words(
        "import os, sys, time\nprint('gone', file=sys.stderr, flush=True)\nif os.fork() == 0: time.sleep(30)"
    )
    assert (code, said) == (0, "gone\n")
