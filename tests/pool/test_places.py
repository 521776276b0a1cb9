"""Tests which values `--pool` accepts."""

from __future__ import annotations

import socket

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant_training.options.addresses import HostAddress, places


def test_places_of_every_kind():
    assert places(["local"]) == [HostAddress("local")]
    assert places(["local:2", "ray:auto"]) == [HostAddress("local", workers=2), HostAddress("ray", "auto")]
    assert places(["ray://head:10001?workers=16"]) == [HostAddress("ray", "ray://head:10001", 16)]
    python = "/opt/venv/bin/python"
    assert places([f"ray:auto?workers=8&python={python}"]) == [HostAddress("ray", "auto", 8, python)]
    assert places([]) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["box"], "--pool box names no place"),
        (["local:"], "names no place"),
        (["local:two"], "'two' is no number of workers"),
        (["local?workers=2"], "names no place"),
        (["ray://"], "names no place"),
        (["ray:auto?gpus=2"], "gpus is no option of a place"),
        (["ray:auto?workers=all"], "'all' is no number"),
        (["ray:auto?workers"], "names no place"),
        (["local:1", "local:2"], "names local twice"),
        (["ray:auto", "ray://head:10001"], "names ray twice"),
    ],
)
def test_what_is_none(words, said):
    with pytest.raises(UsageError, match=said):
        places(words)


def test_ssh_says_what_to_type_on_both_machines():
    with pytest.raises(UsageError, match="other machines are connected by Ray") as caught:
        places(["local", "ssh://me@box?workers=8"])
    here, there, pool = caught.value.next_step.split("; ")
    assert here == "type here: ray start --head --port=6379"
    assert there == f"on me@box: ray start --address={socket.gethostname()}:6379"
    assert pool == "then use --pool 'ray:auto?workers=8'"
