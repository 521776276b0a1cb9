"""Keeps the log of a worker small, so that a module that prints without end does not fill the disk.

The worker writes to the file itself, so that it never waits for this process, and its last output is kept if the worker
is killed. This process cuts the middle out of a file that is too long. Between two checks a worker can write as much as
the disk accepts. Output that is written at the moment in which the file is truncated is lost.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import threading
from typing import IO

HEAD = TAIL = 1 << 20
#: Cutting moves TAIL bytes, so it begins only when as many bytes can be removed.
LONGEST = HEAD + 2 * TAIL
EVERY_SECONDS = 0.1
MOST_COPIES = 8
_NOTICE = "\n[{:>15} bytes of this log were left out here]\n"
_NOTICE_SIZE = len(_NOTICE.format(0))
_LEFT_OUT = re.compile(rb"\n\[ *(\d+) bytes of this log were left out here\]\n")


def watch(sink: IO[bytes], ended: threading.Event) -> None:
    """Starts a thread that keeps the file of `sink` short until `ended` is set. `sink` must be in append mode and may
    be closed after this call. Does nothing if `sink` is not a regular file. Raises OSError."""
    if not stat.S_ISREG(os.fstat(sink.fileno()).st_mode):
        return
    # Opened through the descriptor, since the file may be renamed. Not duplicated: in append mode, pwrite only appends.
    file = os.open(f"/proc/self/fd/{sink.fileno()}", os.O_RDWR | os.O_CLOEXEC)
    threading.Thread(target=_watch, args=(file, ended), name="worker-log", daemon=True).start()


def _watch(file: int, ended: threading.Event) -> None:
    try:
        while not ended.wait(EVERY_SECONDS):
            shorten(file)
        shorten(file)
    finally:
        os.close(file)


def shorten(file: int) -> None:
    """Cuts the middle out of the file with the descriptor `file` if it is longer than LONGEST bytes. If several threads
    watch the same file, only one of them cuts it."""
    if os.fstat(file).st_size <= LONGEST:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # another watcher is cutting it, or the file system has no locks
    try:
        _cut(file)
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _cut(file: int) -> None:
    size = os.fstat(file).st_size
    if size <= LONGEST:
        return
    begin = size - TAIL
    earlier = _LEFT_OUT.fullmatch(os.pread(file, _NOTICE_SIZE, HEAD))
    left_out = begin - HEAD + (int(earlier[1]) - _NOTICE_SIZE if earlier else 0)
    end = HEAD + os.pwrite(file, _NOTICE.format(left_out).encode(), HEAD)
    # The worker continues to write after `size`. The loop is bounded, since it may write faster than this copies.
    for _ in range(MOST_COPIES):
        part = os.pread(file, TAIL, begin)
        end += os.pwrite(file, part, end)
        begin += len(part)
        if not part:
            break
    os.ftruncate(file, end)
