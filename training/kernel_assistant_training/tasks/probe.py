"""The probe: the process that runs candidates (sources of proposed tasks). filter.py starts it in a sandbox; it reads
and writes JSON lines.

A candidate arrives as {text, operators, number, low, high, most_bytes, compile, word}. Before the probe measures times
it sends {"times"} and waits for {"go"}, because other probes may be measuring on the device; it sends {"timed",
"batch"} when the measurement has ended. It sends the graph as {"graph", "unused"}; if the filter answers {"go": false},
the exchange is over. The last message is {"reason", "spent", …}, which may come at any point; `spent` has the seconds
of each stage, and the seconds that cleaning up after the previous candidate took. All messages contain the candidate's
`word`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import IO, Any

import torch

from kernel_assistant_training.synth.digest_kernelbench import exporter
from kernel_assistant_training.tasks.candidates.writing import batch_of
from kernel_assistant_training.tasks.records import Reason
from kernel_assistant_training.tasks.running import Rejected, Running, first_line, guarded
from kernel_assistant_training.tasks.used import plain, used
from kernel_assistant_training.tasks.values import ROUNDED, alike, check_finite, check_values

#: GPU memory that a probe keeps for its next candidate: allocating it anew takes longer than most tasks.
KEPT_BYTES = 2 << 30
Ask = Callable[[dict[str, Any]], bool]


class ProbeTimes(dict[str, float]):
    """The seconds of each stage of judging a candidate."""

    @contextlib.contextmanager
    def on(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self[stage] = round(time.perf_counter() - began, 4)


def judge(asked: dict[str, Any], device: str, ask: Ask, spent: ProbeTimes) -> dict[str, Any] | None:
    """Judges the candidate in the request `asked`. Returns the last message about it; None if the filter has ended the
    exchange. `ask` sends a message and returns the filter's answer; `spent` gets the seconds of each stage."""
    try:
        return _judged(asked, device, ask, spent)
    except Rejected as rejected:
        return {"reason": rejected.reason.value, "message": rejected.message, "spent": spent}


def _judged(asked: dict[str, Any], device: str, ask: Ask, spent: ProbeTimes) -> dict[str, Any] | None:
    with spent.on("build"):
        running = Running(asked["text"], device)
    with spent.on("values"), guarded():
        check_values(running)
    with spent.on("turn"):
        ask({"times": True})
    with spent.on("fit"):
        milliseconds = running.fit(asked["low"], asked["high"], asked["most_bytes"], Random(asked["number"]))
    ask({"timed": milliseconds, "batch": batch_of(running.text)})
    with spent.on("graph"):
        inputs = running.inputs(1)
        want = running.outputs(inputs)
        # These inputs have more values than those of the first batch size, and one may be close to a pole.
        check_finite(want)
        try:
            document = exporter()(running.model, tuple(inputs), {})
        except Exception as error:
            raise Rejected(Reason.no_graph, first_line(error)) from error
        with guarded():
            seen = used(running.model, inputs)
    unused = sorted(name for name in asked["operators"] if plain(name) not in seen)
    if not ask({"graph": document, "unused": unused}):
        return None
    with spent.on("compile"):
        _check_compiled(running, inputs, want, asked["compile"])
    return {"reason": Reason.passed.value, "spent": spent}


def _check_compiled(running: Running, inputs: list[Any], want: list[torch.Tensor], backend: str) -> None:
    """Raises Rejected unless the module runs under torch.compile and returns the same results as in eager mode
    (`want`)."""
    try:
        with torch.no_grad():
            got = torch.compile(running.model, backend=backend, dynamic=False)(*inputs)
    except Exception as error:
        raise Rejected(Reason.compile, first_line(error)) from error
    finally:
        torch._dynamo.reset()
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(got) if isinstance(leaf, torch.Tensor)]
    if not alike(want, leaves, ROUNDED):
        raise Rejected(Reason.compile, "other values")


def _import_tracers() -> None:
    """Imports the modules that torch loads when it traces and compiles for the first time."""
    model, inputs = torch.nn.Softplus(), (torch.ones(2, 3),)
    exporter()(model, inputs, {})
    torch.compile(model, backend="aot_eager", dynamic=False)(*inputs)
    torch._dynamo.reset()


def serve(device: str, answers: IO[str]) -> None:
    """Judges candidates, read from standard input, until standard input ends; writes messages to `answers`."""
    _import_tracers()
    # Torch's own objects are never garbage: scanning them after each candidate took half of the time.
    gc.collect()
    gc.freeze()

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    say({"ready": torch.__version__})
    spent = ProbeTimes()
    for line in sys.stdin:
        asked = json.loads(line)
        word = {"word": asked.pop("word")}

        def ask(question: dict[str, Any], word: dict[str, str] = word) -> bool:
            say({**question, **word})
            return bool(json.loads(sys.stdin.readline())["go"])

        reply = judge(asked, device, ask, spent)
        if reply is not None:
            say({**reply, **word})
        spent = ProbeTimes()
        with spent.on("tidy"):
            gc.collect()
            # The remaining objects are torch's: some of its caches grow with each candidate.
            gc.freeze()
            if device != "cpu" and torch.cuda.memory_reserved(device) > KEPT_BYTES:
                torch.cuda.empty_cache()


def main() -> None:
    """`probe DEVICE THREADS BYTES SHARE`: judges candidates on DEVICE with THREADS CPU threads. It uses at most BYTES
    of the GPU's memory (0: no limit), and at most the fraction SHARE of that memory."""
    # As in worker/boot.py.
    gc.set_threshold(100_000)
    device, threads, most, share = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    # Standard output carries the messages, so what candidates print goes to standard error.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(threads)
    if device != "cpu" and most:
        whole = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(share, most / whole), device)
    with contextlib.suppress(BrokenPipeError):
        serve(device, answers)


if __name__ == "__main__":
    main()
