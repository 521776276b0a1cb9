"""The process that runs candidates, one line of JSON in, one out; started by filter.py in a sandbox.

A candidate comes as {text, operators, number, low, high, most_bytes, compile, word}. Before it times something the
probe says {"times"} and waits for {"go"}: others may be timing on the device; {"timed", "batch"} ends that. What comes
with {"graph", "unused"} is for the other side to judge; where it says {"go": false} nothing follows. Last comes
{"reason", …}, at any place where there is one. All have the word.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from collections.abc import Callable
from random import Random
from typing import IO, Any

import torch

from kernel_assistant_training.synth.digest_kernelbench import exporter
from kernel_assistant_training.tasks.records import Reason
from kernel_assistant_training.tasks.running import Rejected, Running, first_line, guarded
from kernel_assistant_training.tasks.used import plain, used
from kernel_assistant_training.tasks.values import ROUNDED, alike, check_values
from kernel_assistant_training.tasks.writing import batch_of

Ask = Callable[[dict[str, Any]], bool]


def judge(asked: dict[str, Any], device: str, ask: Ask) -> dict[str, Any] | None:
    """The last line about a candidate; None where whoever asked has seen enough."""
    try:
        return _judged(asked, device, ask)
    except Rejected as rejected:
        return {"reason": rejected.reason.value, "message": rejected.message}


def _judged(asked: dict[str, Any], device: str, ask: Ask) -> dict[str, Any] | None:
    running = Running(asked["text"], device)
    with guarded():
        check_values(running)
    ask({"times": True})
    found = running.fit(asked["low"], asked["high"], asked["most_bytes"], Random(asked["number"]))
    ask({"timed": found, "batch": batch_of(running.text)})
    inputs = running.inputs(1)
    try:
        document = exporter()(running.model, tuple(inputs), {})
    except Exception as error:
        raise Rejected(Reason.no_graph, first_line(error)) from error
    with guarded():
        seen = used(running.model, inputs)
    unused = sorted(name for name in asked["operators"] if plain(name) not in seen)
    if not ask({"graph": document, "unused": unused}):
        return None
    _check_compiled(running, inputs, asked["compile"])
    return {"reason": Reason.passed.value}


def _check_compiled(running: Running, inputs: list[Any], backend: str) -> None:
    """Runs under torch.compile and gives what eager gives."""
    want = running.outputs(inputs)
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


def serve(device: str, answers: IO[str]) -> None:
    """Until the input ends."""

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    say({"ready": torch.__version__})
    for line in sys.stdin:
        asked = json.loads(line)
        word = {"word": asked.pop("word")}

        def ask(question: dict[str, Any], word: dict[str, str] = word) -> bool:
            say({**question, **word})
            return bool(json.loads(sys.stdin.readline())["go"])

        found = judge(asked, device, ask)
        if found is not None:
            say({**found, **word})
        gc.collect()
        if device != "cpu":
            torch.cuda.empty_cache()


def main() -> None:
    """`probe DEVICE THREADS BYTES`; bytes are for a GPU's memory, 0 for no bound."""
    device, threads, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # What candidates print is no answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(threads)
    if device != "cpu" and most:
        whole = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, most / whole), device)
    with contextlib.suppress(BrokenPipeError):
        serve(device, answers)


if __name__ == "__main__":
    main()
