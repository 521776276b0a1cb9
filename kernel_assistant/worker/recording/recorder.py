"""Counts and times every call of a module, and writes the results. An error of the recorder never reaches the program:
the recorder then stops and notes the error in the recording."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from typing import Any

import torch

from . import report
from .classes import (
    MOST_CONFIGURATIONS,
    MOST_SIGNATURES,
    ObservedClass,
    ObservedConfiguration,
    ObservedSignature,
    configuration_key,
    describe,
)
from .clock import CallClock, now
from .constructors import ByIdentity, Constructors
from .frame import CallFrame, not_eager
from .notes import call_note, gap_note
from .objects import objects_of
from .rounds import Rounds
from .samples import Samples, main_file
from .signature import Key, Reader, kind, text

_WRITE_EVERY_S = 2.0
_FIRST_WRITE_S = 0.25
#: Share of the time so far from which larger inputs of a class are kept.
_MATTERS = 0.01


class _Thread(threading.local):
    top: CallFrame | None = None
    busy = False
    #: When the call that begins came to the recorder.
    arrived = 0.0


class Recorder:
    """The recorder of one process. `enter` is called before and `leave` after each call of a module; `end` writes the
    recording for the last time.

    With `outermost` it times only calls that are not inside another module's call, compiled ones included, and keeps no
    inputs. `began` is the first `time.perf_counter()` of the process.
    """

    def __init__(self, folder: str, began: float, *, outermost: bool = False) -> None:
        self.active = True
        self.outermost = outermost
        self.folder, self.began = folder, began
        self.classes: dict[type, ObservedClass] = {}
        #: FILE:CLASS of what ran inside torch.compile, and inside torch.jit.script.
        self.compiled: set[str] = set()
        self.scripted: set[str] = set()
        self.skipped: dict[str, int] = {}
        self.failure = ""
        self.main = ""
        self.ended = "running"
        self.calls, self.overhead = 0, 0.0
        self.constructors = Constructors()
        self.clock = CallClock()
        self.rounds = Rounds(self.clock)
        self.samples = Samples(folder, self.constructors)
        self._configurations = ByIdentity()
        self._compiled_modules = ByIdentity()
        self._scripted_modules = ByIdentity()
        self._thread = _Thread()
        self._lock = threading.RLock()
        self._owner = os.getpid()
        self._write_at = now() + _FIRST_WRITE_S

    def enter(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallFrame | None:
        """Begins a call. Returns its frame, which `leave` takes, or None if the call is not recorded. Never raises."""
        thread = self._thread
        if thread.busy or (thread.top is not None and (self.outermost or thread.top.compiled)):
            return None
        arrived = thread.arrived = now()
        thread.busy = True
        try:
            frame = self._outermost_frame(module) if self.outermost else self._eager_frame(module, args, kwargs)
            if frame is not None:
                thread.top = frame
                self._begin(frame, arrived)
            return frame
        except Exception:  # noqa: BLE001 - no error of ours may reach the program; the recording has it
            self._give_up()
            return None
        finally:
            thread.busy = False

    def leave(self, frame: CallFrame, result: Any) -> None:
        """Ends a call, for which `enter` returned `frame`; `result` is None if the call raised an error. Never
        raises."""
        ended = now()
        thread = self._thread
        thread.top, thread.busy = frame.above, True
        try:
            if not self.active or frame.compiled:
                return
            self._count(frame, ended)
            if frame.signature is not None and result is not None:
                self._look_at_result(frame, frame.signature, result)
            self.rounds.leave(ended, self.overhead)
            if frame.above is None and ended >= self._write_at:
                self._write(wait=False)
            spent = now() - ended
            self.overhead += spent
            if frame.above is not None:
                frame.above.overhead += spent + frame.overhead
        except Exception:  # noqa: BLE001 - no error of ours may reach the program; the recording has it
            self._give_up()
        finally:
            thread.busy = False

    def end(self, how: str) -> None:
        """Writes the recording for the last time; later calls are not recorded. `how` says how the program ended, such
        as "exit"."""
        if self.active and os.getpid() == self._owner:
            self.ended = how
            self._write(wait=True)
            self.active = False

    def stop(self) -> None:
        """Stops recording in a forked child, whose calls are not part of this recording."""
        self.active = False

    def _eager_frame(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallFrame | None:
        reason = not_eager(module)
        if not reason:
            return self._frame(module, args, kwargs)
        self.skipped[reason] = self.skipped.get(reason, 0) + 1
        if reason == "torch.compile":
            return self._compiled_frame(module)
        if reason == "torch.jit":
            self._note_scripted(module)
        return None

    def _outermost_frame(self, module: Any) -> CallFrame | None:
        cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if cuda and torch.cuda.is_current_stream_capturing():
            return None
        frame = CallFrame(module, self._class(type(module)), None)
        frame.begun = cuda
        self._begin_round(frame)
        return frame

    def _begin_round(self, frame: CallFrame) -> None:
        arrived, cuda = self._thread.arrived, bool(frame.begun)
        frame.outermost = self.rounds.enter(frame.module, arrived, self.overhead, cuda=cuda)
        frame.phase = self.rounds.phase

    def _class(self, kind: type) -> ObservedClass:
        cls = self.classes.get(kind)
        if cls is None:
            self.main = self.main or main_file()
            cls = self.classes[kind] = describe(kind, len(self.classes))
        return cls

    def _frame(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallFrame:
        cls = self._class(type(module))
        frame = CallFrame(module, cls, self._thread.top)
        above, owner = frame.above, frame.above
        caller = above.cls.cls.__qualname__ if above else ""
        cls.callers[caller] = cls.callers.get(caller, 0) + 1
        while above is not None and not frame.inside:
            frame.inside = above.cls is cls
            above = above.above
        while owner is not None and owner.cls.is_container:
            owner = owner.above
        folded = cls.is_torch and not module._modules and owner is not None
        if folded and owner is not None:
            frame.target = owner.target
        self._recognise(frame, args, kwargs, folded)
        return frame

    def _compiled_frame(self, module: Any) -> CallFrame:
        """Returns a frame for a call that torch.compile runs: it marks all calls inside as compiled, and is not timed
        itself."""
        if self._compiled_modules.get(module) is None:
            self._compiled_modules.put(module, True)
            self.compiled |= _file_and_class({type(one) for one in module.modules()})
        frame = CallFrame(module, describe(type(module), -1), self._thread.top)
        frame.compiled = True
        return frame

    def _note_scripted(self, module: Any) -> None:
        """Notes the classes that `torch.jit.script` compiled. Of a module that was traced or loaded, torch does not
        know the class."""
        if isinstance(module, torch.jit.ScriptModule) and self._scripted_modules.get(module) is None:
            self._scripted_modules.put(module, True)
            python_classes = [
                getattr(getattr(one, "_concrete_type", None), "py_class", None) for one in module.modules()
            ]
            classes = {one for one in python_classes if isinstance(one, type)}
            self.scripted |= _file_and_class({one for one in classes if not one.__module__.startswith("torch.")})

    def _recognise(self, frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any], folded: bool) -> None:
        """Determines the configuration and the signature of a call, and saves its inputs. It does not save them if they
        are saved already, if the class is a container, or if `folded` is set: then the call's time counts for the class
        that calls it."""
        configuration = self._configuration(frame.cls, frame.module)
        reader = Reader()
        key = (reader.key(args), reader.key(kwargs), bool(frame.module.training))
        device = next(iter(reader.devices - {"cpu"}), configuration.device if configuration else "")
        frame.begun = device == "cuda"
        if frame.above is None:
            self._begin_round(frame)
        frame.unserved = self._unserved(frame.module, reader)
        if configuration is None:
            frame.cls.uncounted += 1
            return
        frame.configuration = configuration
        signature = configuration.signatures.get(key)
        if signature is None:
            if len(configuration.signatures) >= MOST_SIGNATURES:
                frame.cls.uncounted += 1
                return
            signature = _signature(len(configuration.signatures), key, reader)
            signature.objects = objects_of(frame.module, args, kwargs)
            configuration.signatures[key] = signature
        frame.first = not signature.calls
        signature.calls += 1
        signature.at(frame.phase).calls += 1
        frame.signature = signature
        settled = signature.refused or (signature.sample >= 0 and signature.exact)
        if not (settled or folded or frame.cls.is_container):
            begun = self.clock.begin(bool(frame.begun))
            self.samples.keep_inputs(frame.cls, configuration, signature, (args, kwargs), self._matters(frame.cls))
            self._aside(begun, frame.above)

    def _configuration(self, cls: ObservedClass, module: Any) -> ObservedConfiguration | None:
        configuration: ObservedConfiguration | None = self._configurations.get(module)
        if configuration is None:
            key, size, device = configuration_key(module)
            configuration = cls.configurations.get(key)
            if configuration is None and len(cls.configurations) < MOST_CONFIGURATIONS:
                configuration = cls.configurations[key] = ObservedConfiguration(len(cls.configurations), size, device)
            if configuration is not None:
                self._configurations.put(module, configuration)
        return configuration

    def _unserved(self, module: Any, reader: Reader) -> str:
        if torch._C._is_any_autocast_enabled():
            return "autocast"
        if not torch.is_grad_enabled():
            return ""
        needed = reader.gradient or any(parameter.requires_grad for parameter in module.parameters())
        return "gradient" if needed else ""

    def _begin(self, frame: CallFrame, arrived: float) -> None:
        frame.begun = None if frame.compiled else self.clock.begin(bool(frame.begun))
        frame.began = now()
        spent = frame.began - arrived
        self.overhead += spent
        if frame.above is not None:
            frame.above.overhead += spent

    def _count(self, frame: CallFrame, ended: float) -> None:
        frame.cls.calls += 1
        self.calls += 1
        note = call_note(frame, self._lock)
        self.clock.end(frame.begun, ended - frame.began - frame.overhead, note)

    def _look_at_result(self, frame: CallFrame, signature: ObservedSignature, result: Any) -> None:
        if not signature.output:
            reader = Reader()
            signature.output = text(reader.key(result))
            signature.output_bytes = reader.bytes
        configuration = frame.configuration
        if configuration is not None and signature.sample >= 0 and configuration.kept != "module":
            begun = self.clock.begin(frame.begun is not None)
            self.samples.keep_module(frame.cls, configuration, frame.module, self._matters(frame.cls))
            self._aside(begun, frame.above)

    def _aside(self, begun: Any, above: CallFrame | None) -> None:
        """Subtracts the time of saving inputs, since the clock's `begun`, from the call `above` and all calls around
        it. This corrects their times on the device; their CPU times are corrected by `CallFrame.overhead`."""
        around: list[CallFrame] = []
        while above is not None:
            if above.begun is not None:
                around.append(above)
            above = above.above
        if begun is not None and around:
            self.clock.end(begun, 0.0, gap_note(around, self._lock))

    def _matters(self, cls: ObservedClass) -> bool:
        return sum(one.share for one in list(cls.phases.values())) > _MATTERS * (now() - self.began)

    def _write(self, *, wait: bool) -> None:
        try:
            began = now()
            if wait:
                self.clock.settle()
            report.write(self)
            self._write_at = now() + max(_WRITE_EVERY_S, 20 * (now() - began))
        except Exception:  # noqa: BLE001 - no error of ours may reach the program; the recording has it
            self._give_up()

    def _give_up(self) -> None:
        """Stops recording for good after an error of ours, and writes what was counted so far with the error."""
        self.active = False
        error = traceback.format_exc()
        self.failure = error.strip().splitlines()[-1]
        try:
            report.write(self)
        except Exception:  # noqa: BLE001 - as above, and now there is no file to report it in
            sys.stderr.write(f"kernel-assistant scan: the recorder failed and stopped: {error}\n")


def _file_and_class(classes: set[type]) -> set[str]:
    """Returns the names FILE:CLASS of the `classes` that are defined in a file."""
    return {f"{one.path}:{one.cls.__qualname__}" for one in (describe(cls, -1) for cls in classes) if one.path}


def _signature(number: int, key: Key, reader: Reader) -> ObservedSignature:
    args, kwargs, training = key
    shown = text(args)
    if len(kwargs) > 1:
        shown = f"{shown[:-1]}{', ' if len(args) > 1 else ''}{text(kwargs)[1:-1]})"
    return ObservedSignature(number, shown, repr(kind(key)), reader.bytes, training)
