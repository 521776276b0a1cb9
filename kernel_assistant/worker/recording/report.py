"""Writes `recording.json`: all counts and times as plain values (records/scan.py reads it)."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import torch

from .classes import ObservedClass, ObservedConfiguration, ObservedSignature, is_installed
from .clock import now
from .samples import folder_name, write_file

if TYPE_CHECKING:
    from .recorder import Recorder

FILE = "recording.json"


def write(recorder: Recorder) -> None:
    """Replaces `recording.json` with the present state. If the program has a loop (three or more outermost calls of one
    module), the seconds of classes are those from the loop's second round on, otherwise those of all calls."""
    classes = [cls for cls in list(recorder.classes.values()) if cls.calls]
    rounds, loop = recorder.rounds, recorder.rounds.loop
    phase = loop.looped_from if loop else 0
    document = {
        "version": 1,
        "pid": os.getpid(),
        "argv": list(sys.orig_argv),
        "folder": os.getcwd(),
        "main": recorder.main,
        "python": sys.executable,
        "torch": torch.__version__,
        "clock": "cuda events" if recorder.clock.events_used else "cpu",
        "device": _device(recorder),
        "wall_seconds": now() - recorder.began,
        "startup_seconds": rounds.starts[0].moment - recorder.began if rounds.starts else 0.0,
        "calls_seconds": rounds.span(0),
        "loop_seconds": rounds.span(phase) if loop else 0.0,
        "loop": loop.name if loop else "",
        "rounds": loop.calls - 1 if loop else 0,
        "overhead_seconds": recorder.overhead,
        "calls": recorder.calls,
        "ended": recorder.ended,
        "failure": recorder.failure,
        "skipped": dict(recorder.skipped),
        "compiled": sorted(recorder.compiled),
        "scripted": sorted(recorder.scripted),
        "search_path": _own_folders(),
        "classes": [_class(cls, phase) for cls in classes],
    }
    write_file(os.path.join(recorder.folder, FILE), json.dumps(document).encode())


def _class(cls: ObservedClass, phase: int) -> dict[str, Any]:
    times = cls.since(phase)
    return {
        "name": cls.cls.__name__,
        "qualname": cls.cls.__qualname__,
        "module": cls.cls.__module__,
        "path": cls.path,
        "installed": bool(cls.path) and is_installed(cls.path),
        "calls": cls.calls,
        "inclusive_seconds": times.inclusive,
        "first_seconds": cls.since(0).first,
        "warm_seconds": times.inclusive - times.first,
        "own_seconds": times.own,
        "share_seconds": times.share,
        "products_seconds": times.products,
        "unserved_seconds": {reason: seconds for reason, seconds in times.unserved.items() if seconds > 0},
        "callers": dict(cls.callers),
        "container": cls.is_container,
        "uncounted": cls.uncounted,
        "configurations": [_configuration(cls, one, phase) for one in list(cls.configurations.values())],
    }


def _configuration(cls: ObservedClass, configuration: ObservedConfiguration, phase: int) -> dict[str, Any]:
    return {
        "folder": folder_name(cls, configuration),
        "parameter_bytes": configuration.bytes,
        "kept": configuration.kept,
        "notes": list(configuration.notes),
        "signatures": [_signature(one, phase) for one in list(configuration.signatures.values())],
    }


def _signature(signature: ObservedSignature, phase: int) -> dict[str, Any]:
    counted = signature.since(phase)
    return {
        "text": signature.text,
        "kind": signature.kind,
        "output": signature.output,
        "calls": signature.calls,
        "counted_calls": counted.calls,
        "seconds": counted.seconds,
        "training": signature.training,
        "input_bytes": signature.input_bytes,
        "output_bytes": signature.output_bytes,
        "sample": signature.sample,
        "exact": signature.exact,
        "objects": list(signature.objects),
    }


def _device(recorder: Recorder) -> str:
    if not recorder.clock.events_used:
        return "cpu"
    return str(torch.cuda.get_device_name())


def _own_folders() -> list[str]:
    """Returns the folders of the program's import path, without those of installed packages: a worker under the same
    interpreter has these anyway."""
    entries = [os.path.abspath(entry) for entry in sys.path]
    return [entry for entry in dict.fromkeys(entries) if os.path.isdir(entry) and not is_installed(entry + os.sep)]
