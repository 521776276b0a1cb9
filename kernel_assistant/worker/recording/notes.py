"""Makes the functions that add the seconds of a call to the times of classes once they are known; on CUDA that is some
time after the call."""

from __future__ import annotations

import threading

from .clock import Note
from .frame import CallFrame


def call_note(frame: CallFrame, lock: threading.RLock) -> Note:
    """Returns a function that adds the seconds of a call to the times of its class, and subtracts them from the own
    time of the class whose call is around it."""
    cls, phase, above = frame.cls, frame.phase, frame.above
    times, target = cls.at(phase), frame.target.at(phase)
    parent = None if above is None else above.cls.at(above.phase)
    called = None if frame.signature is None else frame.signature.at(phase)
    inclusive, unserved, first = not frame.inside, frame.unserved, frame.first
    above_unserved = "" if above is None else above.unserved
    outermost = frame.outermost

    def note(seconds: float) -> None:
        with lock:
            if inclusive:
                times.inclusive += seconds
                times.first += seconds if first else 0.0
            times.own += seconds
            target.share += seconds
            target.products += seconds if cls.is_product else 0.0
            target.leave(unserved, seconds)
            if parent is not None:
                parent.own -= seconds
                parent.share -= seconds
                parent.leave(above_unserved, -seconds)
            if outermost is not None:
                outermost.seconds += seconds
            if called is not None:
                called.seconds += seconds

    return note


def gap_note(around: list[CallFrame], lock: threading.RLock) -> Note:
    """Returns a function that subtracts the seconds in which inputs were saved from the times of the calls in `around`.
    These calls were running meanwhile; the innermost is first."""
    inner, outer = around[0], around[-1]

    def note(seconds: float) -> None:
        with lock:
            inside = inner.cls.at(inner.phase)
            inside.own -= seconds
            inside.share -= seconds
            inside.leave(inner.unserved, -seconds)
            if outer.outermost is not None:
                outer.outermost.seconds -= seconds
            for frame in around:
                times = frame.cls.at(frame.phase)
                times.inclusive -= 0.0 if frame.inside else seconds
                times.first -= seconds if frame.first and not frame.inside else 0.0
                if frame.signature is not None:
                    frame.signature.at(frame.phase).seconds -= seconds

    return note
