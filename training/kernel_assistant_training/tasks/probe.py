"""The process that runs candidates, one line of JSON in, one out; started by filter.py in a sandbox.

A candidate comes as {text, operators, number, low, high, most_bytes, compile}. Before it times something the probe says
{"times"} and waits for {"go"}: others may be timing on the device; {"timed"} ends that. {"key"} asks whether another
has it, and waits for {"go"} too. Last comes {"reason", …}.
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

from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import from_builtins
from kernel_assistant_training.synth.digest_kernelbench import exporter
from kernel_assistant_training.synth.digests import computing
from kernel_assistant_training.synth.split import split_of
from kernel_assistant_training.tasks.records import Reason
from kernel_assistant_training.tasks.running import Rejected, Running, first_line, guarded
from kernel_assistant_training.tasks.used import plain, used
from kernel_assistant_training.tasks.values import ROUNDED, alike, check_values


def judge(asked: dict[str, Any], device: str, ask: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The verdict's fields, as builtins."""
    found: dict[str, Any] = {"text": asked["text"], "reason": Reason.passed.value}
    try:
        running = Running(asked["text"], device)
        with guarded():
            check_values(running)
        ask({"times": True})
        found["eager_ms"] = running.fit(asked["low"], asked["high"], asked["most_bytes"], Random(asked["number"]))
        ask({"timed": True})
        found["text"] = running.text
        inputs = running.inputs(1)
        document, graph = _graph(running, inputs)
        if not any(computing(graph)):
            raise Rejected(Reason.copy, "values are moved only")
        _check_used(running, inputs, asked["operators"])
        found |= {"graph": document, "key": canonical(graph).key()}
        found["split"] = split_of(graph, found["key"])
        if found["split"] == "excluded":
            raise Rejected(Reason.kernelbench)
        if not ask({"key": found["key"]}):
            raise Rejected(Reason.duplicate)
        _check_compiled(running, inputs, asked["compile"])
    except Rejected as rejected:
        found |= {"reason": rejected.reason.value, "message": rejected.message}
    return found


def _graph(running: Running, inputs: list[Any]) -> tuple[dict[str, Any], OpGraph]:
    try:
        document = exporter()(running.model, tuple(inputs), {})
        return document, from_builtins(document, OpGraph)
    except Exception as error:
        raise Rejected(Reason.no_graph, first_line(error)) from error


def _check_used(running: Running, inputs: list[Any], operators: list[str]) -> None:
    with guarded():
        seen = used(running.model, inputs)
    missing = sorted(name for name in operators if plain(name) not in seen)
    if missing:
        raise Rejected(Reason.unused_operator, ", ".join(missing))


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

    def ask(question: dict[str, Any]) -> bool:
        say(question)
        return bool(json.loads(sys.stdin.readline())["go"])

    say({"ready": torch.__version__})
    for line in sys.stdin:
        say(judge(json.loads(line), device, ask))
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
