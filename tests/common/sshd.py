"""A real sshd on loopback that runs as this user, with a home of its own. It stands for another machine with the same
processor.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernel_assistant.config import Settings, resolve
from kernel_assistant.session.client import Client

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
SSH = shutil.which("ssh")


def lacking():
    """The reason why this user cannot run an sshd, else ""."""
    if SSHD is None or SSH is None:
        return "needs sshd and ssh (Debian: openssh-server)"
    try:
        shell = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        return "needs a user that the system knows"
    return "needs a user with a login shell" if Path(shell).name in ("nologin", "false") else ""


@dataclass
class Sshd:
    """`home` and `path` are the values of HOME and PATH for commands on the remote side."""

    folder: Path
    home: Path
    port: int
    path: str
    process: subprocess.Popen[bytes] | None = None

    def start(self, **environment: str) -> None:
        """Starts the server, or restarts it with other variables."""
        self.stop()
        variables = {"HOME": str(self.home), "PATH": self.path, **environment}
        config = self.folder / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder / 'host_key'}\n"
            f"AuthorizedKeysFile {self.folder / 'user_key.pub'}\nPidFile none\nUsePAM no\nStrictModes no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            f"SetEnv {' '.join(f'{name}={value}' for name, value in variables.items())}\n"
        )
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stdout=log, stderr=log)
        while True:
            assert self.process.poll() is None, (self.folder / "sshd.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.02)

    @property
    def settings(self) -> Settings:
        """The settings of the session host on the remote side."""
        folder = self.home / ".cache/kernel-assistant/remote/home"
        return resolve(None, None, {"KERNEL_ASSISTANT_HOME": str(folder), "HOME": str(self.home)})[0]

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None


@pytest.fixture(scope="session")
def ssh_folder(tmp_path_factory):
    """Keys, and an `ssh` that knows only the machines of these tests and ignores the user's own configuration."""
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host_key", "user_key", "other_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    key = (folder / "host_key.pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(key)}\n")
    (folder / "no_hosts").write_text("")
    (folder / "config").write_text(
        f"Host nowhere\n  HostName no-such-machine.invalid\nHost closed\n  HostName 127.0.0.1\n  Port 1\n"
        f"Host stranger\n  IdentityFile {folder / 'other_key'}\n"
        f"Host unknown\n  UserKnownHostsFile {folder / 'no_hosts'}\n"
        f"Host box unknown\n  IdentityFile {folder / 'user_key'}\n"
        f"Host *\n  HostName 127.0.0.1\n  Port {port}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder / 'known_hosts'}\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n"
    )
    program = folder / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {SSH} -F {folder / "config"} "$@"\n')
    program.chmod(0o755)
    return folder, port


@pytest.fixture(scope="module")
def sshd(ssh_folder, tmp_path_factory):
    """On the remote side PATH leads to this interpreter, which has torch."""
    folder, port = ssh_folder
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    home = tmp_path_factory.mktemp("there")
    server = Sshd(folder, home, port, path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin")
    server.start()
    yield server
    server.stop()
    Client(server.settings).shutdown()
