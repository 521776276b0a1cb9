"""`run`: results are data, and no process stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernel_assistant.errors import MissingError, SandboxError
from kernel_assistant.sandbox.contract import Sandbox, SandboxLimits, SandboxSpec
from kernel_assistant.sandbox.launcher import PYTHON
from kernel_assistant.sandbox.run import run
from tests.sandbox.checks.bench import PROBES, wait_until, with_token


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (PYTHON, "-I", "-S", "-c", code, *arguments)


def test_output_and_exit_code_come_back(any_sandbox: Sandbox) -> None:
    code = "import sys; sys.stdout.write('out'); sys.stderr.write('err'); sys.exit(7)"
    done = run(any_sandbox, SandboxSpec(argv=python(code)), timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out", b"err")
    assert not (done.timed_out or done.cancelled or done.truncated or done.exceeded)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        *((f"import os; os.kill(os.getpid(), {int(one)})", one) for one in (signal.SIGABRT, signal.SIGFPE)),
        ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV),
    ],
)
@pytest.mark.parametrize("allow_fork", [False, True])
def test_a_crash_is_told_by_its_signal(any_sandbox: Sandbox, code: str, wanted: int, allow_fork: bool) -> None:
    done = run(any_sandbox, SandboxSpec(argv=python(code), allow_fork=allow_fork), timeout=60)
    assert done.returncode == 128 + wanted


def test_a_missing_command_is_127(any_sandbox: Sandbox) -> None:
    done = run(any_sandbox, SandboxSpec(argv=("no-such-program",)), timeout=60)
    assert done.returncode == 127
    assert b"no-such-program" in done.stderr


def test_a_flood_is_cut_and_does_not_block(any_sandbox: Sandbox) -> None:
    code = "import os\nfor _ in range(3000): os.write(1, bytes(4096)); os.write(2, b'x' * 4096)"
    done = run(any_sandbox, SandboxSpec(argv=python(code)), timeout=60, max_output=10_000)
    assert done.returncode == 0 and done.truncated
    assert (len(done.stdout), len(done.stderr)) == (10_000, 10_000)


def test_input_arrives_whole(any_sandbox: Sandbox) -> None:
    data = os.urandom(300_000)
    code = "import sys, zlib; sys.stdout.write(str(zlib.crc32(sys.stdin.buffer.read())))"
    done = run(any_sandbox, SandboxSpec(argv=python(code)), timeout=60, stdin=data)
    assert int(done.stdout) == zlib.crc32(data)


def test_input_that_nobody_reads_is_dropped(any_sandbox: Sandbox) -> None:
    done = run(any_sandbox, SandboxSpec(argv=python("pass")), timeout=60, stdin=bytes(1 << 20))
    assert (done.returncode, done.timed_out) == (0, False)


def test_a_time_limit_ends_a_process_that_ignores_signals(any_sandbox: Sandbox) -> None:
    code = (
        "import signal, time\n"
        "for number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(1)"
    )
    done = run(any_sandbox, SandboxSpec(argv=python(code)), timeout=4.0)
    assert done.timed_out and not done.cancelled
    assert done.returncode == 128 + signal.SIGKILL
    assert done.stdout == b"ready\n"


def test_a_closed_output_does_not_end_the_wait(any_sandbox: Sandbox) -> None:
    code = "import os, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(5)"
    done = run(any_sandbox, SandboxSpec(argv=python(code)), timeout=60)
    assert done.returncode == 5


def test_cancel_ends_the_whole_tree(any_sandbox: Sandbox) -> None:
    token = uuid.uuid4().hex
    cancel = threading.Event()
    spec = SandboxSpec(
        argv=(PYTHON, "-I", "-S", PROBES, "leave_children", f'["{token}"]'), read_only=(PROBES,), allow_fork=True
    )

    def cancel_when_started() -> None:
        if wait_until(lambda: len(with_token(token)) == 2, 30):
            cancel.set()

    watcher = threading.Thread(target=cancel_when_started)
    watcher.start()
    done = run(any_sandbox, spec, timeout=60, cancel=cancel)
    watcher.join()
    assert done.cancelled and not done.timed_out
    assert with_token(token) == []


def test_what_a_finished_command_left_running_is_ended(any_sandbox: Sandbox) -> None:
    token = uuid.uuid4().hex
    code = (
        "import os, sys\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]])\n"
        "sys.exit(3)"
    )
    done = run(any_sandbox, SandboxSpec(argv=python(code, token), allow_fork=True), timeout=60)
    assert done.returncode == 3 and not done.timed_out
    # The system takes a moment to end a namespace whose first process is gone.
    assert wait_until(lambda: not with_token(token), 5)


def test_memory_of_a_whole_tree_is_bounded(any_sandbox: Sandbox) -> None:
    code = (
        "import os, time\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0:\n"
        "        held = b'x' * (64 << 20); time.sleep(60)\n"
        "time.sleep(60)"
    )
    limits = SandboxLimits(memory_bytes=256 << 20)
    done = run(any_sandbox, SandboxSpec(argv=python(code), allow_fork=True, limits=limits), timeout=60)
    assert done.exceeded == "memory" and not done.timed_out


def test_processor_time_is_bounded(any_sandbox: Sandbox) -> None:
    spec = SandboxSpec(argv=python("while True: pass"), limits=SandboxLimits(cpu_seconds=1))
    done = run(any_sandbox, spec, timeout=60)
    assert done.returncode in (128 + signal.SIGXCPU, 128 + signal.SIGKILL) and not done.timed_out


def test_the_sandbox_dies_with_its_spawner(sandbox: Sandbox) -> None:
    token = uuid.uuid4().hex
    script = (
        "import os\n"
        "from kernel_assistant.sandbox.choose import choose\n"
        "from kernel_assistant.sandbox.contract import SandboxSpec\n"
        "from kernel_assistant.sandbox.launcher import PYTHON\n"
        "from kernel_assistant.sandbox.run import run\n"
        "spec = SandboxSpec(argv=(PYTHON, '-I', '-S', '-c', 'import time; time.sleep(600)', os.environ['TOKEN']))\n"
        "run(choose(os.environ['BACKEND']), spec, timeout=600)\n"
    )
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path), "BACKEND": sandbox.name, "TOKEN": token}
    spawner = subprocess.Popen([sys.executable, "-c", script], env=env)
    # bubblewrap's and the launcher's command lines end in the token too.
    assert wait_until(lambda: any(_sleeps(pid) for pid in with_token(token)), 60)
    spawner.kill()
    spawner.wait()
    assert wait_until(lambda: not with_token(token))


def _sleeps(pid: int) -> bool:
    try:
        return b"launch.py" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_the_sandbox_survives_the_end_of_nothing_but_its_thread(sandbox: Sandbox) -> None:
    """Several sandboxes at once, each from a thread of its own, as in the compile step."""
    code = "import time; time.sleep(0.2); print('done')"
    with ThreadPoolExecutor(4) as pool:
        done = pool.map(lambda _: run(sandbox, SandboxSpec(argv=python(code)), timeout=60).stdout, range(4))
    assert list(done) == [b"done\n"] * 4


def test_a_path_that_does_not_exist_is_named(sandbox: Sandbox) -> None:
    with pytest.raises(MissingError, match="/no/such/folder"):
        run(sandbox, SandboxSpec(argv=("true",), read_only=("/no/such/folder",)), timeout=60)


def test_a_launcher_that_cannot_apply_the_policy_is_ours_to_mend(any_sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="sandbox: "):
        run(any_sandbox, SandboxSpec(argv=("true",), cwd="/no-such-folder"), timeout=60)


def test_no_process_of_a_run_stays_a_zombie(sandbox: Sandbox) -> None:
    pids: list[int] = []
    run(sandbox, SandboxSpec(argv=python("pass")), timeout=60, started=pids.append)
    assert not Path(f"/proc/{pids[0]}").exists()
