"""Reads which conversations a folder of episodes has, so that none is stored twice and a run can continue."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from kernel_assistant_training.episodes.lines import Episode, Failure, read_lines


def identity(key: str, replies: Iterable[str]) -> str:
    """A hash of a conversation: of its task's key and its replies."""
    return hashlib.sha256("\0".join([key, *replies]).encode()).hexdigest()[:16]


def progress(out: Path, target: str) -> tuple[set[str], int]:
    """The identities of all stored episodes of all processes, and the number of the next task."""
    known, first = set(), 0
    for path in sorted(out.glob(f"episodes-{target}-*.jsonl")):
        for episode in read_lines(path, Episode):
            replies = [message["content"] for message in episode.messages if message["role"] == "assistant"]
            known.add(identity(episode.key, replies))
            first = max(first, episode.number + 1)
    for path in sorted(out.glob(f"failures-{target}-*.jsonl")):
        first = max([first, *(failure.number + 1 for failure in read_lines(path, Failure))])
    return known, first
