"""Commands on the remote side that break off, as the local side sees them."""

from __future__ import annotations

import sys

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.errors import HostError, MissingError
from kernel_assistant.remote.ssh import Ssh

pytestmark = pytest.mark.cluster

#: Half a frame, and what follows.
HALF = "import os, sys, time; sys.stdout.write('KA01'); sys.stdout.flush(); "


@pytest.fixture
def channel(sshd, here):
    """A function: Python text → the channel to this program on the remote side."""
    opened = []

    def start(text):
        opened.append(Ssh("box", resolve()[0].runtime_dir).open(sys.executable, "-c", text))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_command_that_ends_in_the_middle_of_an_answer(channel):
    with pytest.raises(HostError, match="box: no more") as caught:
        channel(HALF + "sys.exit('no more')").ask({})
    assert "doctor --host box" in caught.value.next_step


def test_connection_that_is_killed_in_the_middle_of_an_answer(channel):
    one = channel(HALF + "time.sleep(60)")
    one.stream.recv(4)
    one.process.kill()
    with pytest.raises(MissingError, match="box: the connection was lost"):
        one.ask({})
    assert one.lost()


def test_answer_that_is_none(channel):
    with pytest.raises(MissingError, match="box: its shell prints something before"):
        channel("print('welcome to this machine', flush=True); input(); input()").ask({})


def test_command_that_says_nothing(channel):
    with pytest.raises(HostError, match="box: the command over there ended with status 3"):
        channel("raise SystemExit(3)").ask({})
