"""A process that a signal asks to end does so, wherever its main thread was interrupted."""

from __future__ import annotations

import subprocess
import sys
import threading

from kernel_assistant.signals import SignalSafeEvent

#: With `threading.Event` some four of a hundred signals found its lock held by the thread that they interrupted.
PROGRAM = """
import signal
from kernel_assistant.signals import SignalSafeEvent

stop, count = SignalSafeEvent(), 0

def handle(number, frame):
    global count
    count += 1
    stop.set()

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
while count < 1000:
    stop.wait(0.00002)
    stop.clear()
print("ended")
"""


def test_a_handler_may_set_what_its_own_thread_waits_for(python_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "ended\n", done.stderr


def test_every_waiting_thread_is_woken():
    event, woken = SignalSafeEvent(), []
    threads = [threading.Thread(target=lambda: woken.append(event.wait(60))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert not event.wait(0.01) and not event.is_set() and not woken
    event.set()
    for thread in threads:
        thread.join(60)
    assert woken == [True] * 4 and event.wait() and event.is_set()
    event.clear()
    assert not event.wait(0.01)
