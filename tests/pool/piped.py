"""A machine over a pipe: what runs behind ssh, started here, so that a test can end it at any moment."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile

import psutil

from kernel_assistant.remote.ssh import Channel
from kernel_assistant_training.ppo.pool_events import StationOptions
from kernel_assistant_training.ppo.pool_machine import Far, Member
from kernel_assistant_training.ppo.pool_ssh import MODULE, ChannelWire
from tests.common.caches import IMPOSSIBLE

#: Bandwidths are given: on a busy machine they cannot be measured.
OPTIONS = StationOptions(
    target="cpu", builders=2, copy_bandwidth=IMPOSSIBLE, read_bandwidth=IMPOSSIBLE, beat_seconds=0.25
)


class Piped:
    """Another machine but for the processor and the wire. `process` is the newest of its program,
    `named` what the head takes for its interpreter."""

    def __init__(self, name, python=sys.executable, silent=20.0, named=""):
        self.name, self.python, self.silent, self.named = name, python, silent, named
        self.process = self.machine = None
        self.heard = lambda machine, event: None

    @property
    def member(self):
        return Member(self.name, self.connect)

    def connect(self, options, hear):
        ours, theirs = socket.socketpair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the channel
        argv = [self.python, "-m", MODULE]
        self.process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=errors, start_new_session=True)
        theirs.close()
        wire = ChannelWire(Channel(self.name, ours, self.process, errors), self.named or self.python, self.silent)

        def both(machine, event):
            hear(machine, event)
            self.heard(machine, event)

        self.machine = Far(self.name, wire, options, both, self.silent)
        return self.machine

    def kill_worker(self):
        """The process that judges; its number."""
        for one in psutil.Process(self.process.pid).children(recursive=True):
            # Compilers come and go beside it, and one that was killed may still be there.
            with contextlib.suppress(psutil.NoSuchProcess):
                if any("worker/boot.py" in word for word in one.cmdline()):
                    one.kill()
                    return one.pid
        return None


def outcomes(job):
    return [one.outcome.value if one else None for one in job.found]
