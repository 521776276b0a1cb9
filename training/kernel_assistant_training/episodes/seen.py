"""What a folder of episodes has already: no conversation twice, and the task to go on with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from kernel_assistant_training.episodes.lines import Episode, Failure, read_lines


def identity(key: str, said: Iterable[str]) -> str:
    """Of a conversation: no two lines have the same replies to the same canonical graph."""
    return hashlib.sha256("\0".join([key, *said]).encode()).hexdigest()[:16]


def progress(out: Path, target: str) -> tuple[set[str], int]:
    """Identities of all episodes of all processes so far, and the number of the task to go on with."""
    known, first = set(), 0
    for path in sorted(out.glob(f"episodes-{target}-*.jsonl")):
        for episode in read_lines(path, Episode):
            said = [message["content"] for message in episode.messages if message["role"] == "assistant"]
            known.add(identity(episode.key, said))
            first = max(first, episode.number + 1)
    for path in sorted(out.glob(f"failures-{target}-*.jsonl")):
        first = max([first, *(failure.number + 1 for failure in read_lines(path, Failure))])
    return known, first
