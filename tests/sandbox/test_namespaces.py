"""bubblewrap without seccomp, which refuses sockets too and would hide that a network namespace is missing."""

from __future__ import annotations

import json
import os

import pytest

from kernel_assistant.sandbox.choose import choose
from kernel_assistant.sandbox.contract import SandboxSpec
from kernel_assistant.sandbox.launcher import PYTHON
from kernel_assistant.sandbox.run import run
from tests.sandbox.conftest import ISOLATING

pytestmark = pytest.mark.skipif("bubblewrap" not in ISOLATING, reason="needs bubblewrap")

SEEN = """
import json, os, socket
spaces = {name: os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")}
interfaces = sorted(line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line)
print(json.dumps([spaces, interfaces]))
"""


@pytest.mark.parametrize("allow_fork", [False, True])
def test_every_namespace_is_its_own_and_the_network_has_no_way_out(allow_fork: bool) -> None:
    spec = SandboxSpec(argv=(PYTHON, "-I", "-S", "-c", SEEN), allow_fork=allow_fork)
    done = run(choose("bubblewrap"), spec, timeout=60)
    assert done.returncode == 0, done.stderr
    spaces, interfaces = json.loads(done.stdout)
    ours = {name: os.readlink(f"/proc/self/ns/{name}") for name in ("net", "pid", "ipc", "uts", "mnt")}
    assert [name for name in ours if spaces[name] == ours[name]] == []
    assert interfaces == ["lo"]
