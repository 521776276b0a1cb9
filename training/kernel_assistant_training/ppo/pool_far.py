"""What runs on another machine: `python -m kernel_assistant_training.ppo.pool_far`, frames on stdin and stdout."""

from __future__ import annotations

import os
import sys
import threading

from kernel_assistant.errors import EXIT_INTERNAL, EXIT_OK
from kernel_assistant.worker.frames import read_frame, write_frame
from kernel_assistant_training.ppo.pool_outpost import Message, Outpost


def main() -> int:
    """Until the head hangs up or falls silent."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a print would break the protocol
    lock = threading.Lock()

    def say(message: Message) -> None:
        with lock:
            try:
                write_frame(answers, message)
            except OSError:
                return  # nobody listens any more; the end of the input says so too

    outpost = Outpost(say, gone=lambda: os._exit(EXIT_INTERNAL))
    try:
        while (frame := read_frame(requests)) is not None:
            outpost.take(frame[0])
    finally:
        outpost.close()
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
