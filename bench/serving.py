"""Measures serving: `python bench/serving.py --out FOLDER [--engine vllm]`. Needs transformers and the engine.

Makes a Llama of ten million weights that knows one conversation by heart, writes it as 8-bit GGUF, serves that as
`kernel-assistant serve` does, has the conversation with its tool call, and counts tokens. What it starts ends with it.
With `--running` the server that runs already is measured, and stays.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - after the path, like everything below

from kernel_assistant.config import resolve  # noqa: E402
from kernel_assistant.serving.convert_run import convert  # noqa: E402
from kernel_assistant.serving.plan import gpu_memory  # noqa: E402
from kernel_assistant.serving.request import ServeRequest  # noqa: E402
from kernel_assistant.serving.server import serve_detached  # noqa: E402
from kernel_assistant.serving.state import ServerState, running, stop_running  # noqa: E402
from tests.serving import tiny  # noqa: E402

_TOKENS = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for serving.json")
    parser.add_argument("--engine", default="auto", help="auto, vllm or llama.cpp")
    parser.add_argument("--share", type=float, default=0.1, help="of the GPU's memory")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 64], help="requests at once, one figure for each")
    parser.add_argument("--running", action="store_true", help="measure the server that runs")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    try:
        if arguments.running:
            _measure_running(arguments.at_once, figures)
        else:
            _measure_own(arguments, figures)
    finally:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "serving.json").write_text(json.dumps(figures, indent=1))
        print(json.dumps(figures, indent=1), flush=True)


def _measure_running(at_once: list[int], figures: dict[str, Any]) -> None:
    state = running(resolve()[0])
    if state is None:
        raise SystemExit("no server runs: kernel-assistant serve MODEL --detach")
    figures |= {"engine": state.engine, "ready_s": state.ready_seconds, "model": state.source}
    _demand(state, figures)
    _count(state, figures, at_once)


def _measure_own(arguments: argparse.Namespace, figures: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gguf = _make(Path(folder), figures)
        settings = resolve()[0]
        free_before = _free()
        request = ServeRequest(model=str(gguf), engine=arguments.engine, context=2048, gpu_memory_share=arguments.share)
        began = time.monotonic()
        state = serve_detached(request, settings, lambda server: print(server.status.value, flush=True))
        try:
            figures |= {"engine": state.engine, "ready_s": state.ready_seconds, "serve_s": _since(began)}
            figures["gpu_gib"] = round((free_before - _free()) / 2**30, 2)
            _converse(state, figures)
            _demand(state, figures)
            _count(state, figures, arguments.at_once)
        finally:
            began = time.monotonic()
            stop_running(settings)
            figures |= {"stop_s": _since(began), "gpu_gib_after": round((free_before - _free()) / 2**30, 2)}
            arguments.out.mkdir(parents=True, exist_ok=True)
            log = Path(state.log).read_text(errors="replace")
            (arguments.out / "engine.log").write_text(log[-200_000:])


def _make(folder: Path, figures: dict[str, Any]) -> Path:
    began = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = tiny.make(folder / "model", tiny.TEN_MILLION, steps=80, device=device)
    figures |= {"parameters": model.num_parameters(), "make_s": _since(began)}
    del model
    if device == "cuda":
        torch.cuda.empty_cache()
    began = time.monotonic()
    convert("to-gguf", folder / "model", folder / "model.gguf")
    figures |= {"to_gguf_s": _since(began), "gguf_bytes": (folder / "model.gguf").stat().st_size}
    return folder / "model.gguf"


def _converse(state: ServerState, figures: dict[str, Any]) -> None:
    """Has the scripted conversation: a tool call that the model chooses, and its result."""
    messages = [message.openai() for message in tiny.QUESTION]
    first = _ask(state, messages=messages, tools=tiny.TOOLS, temperature=0, max_tokens=200, return_token_ids=True)
    reply = first["choices"][0]["message"]
    figures["tool_calls"] = [call["function"] for call in reply.get("tool_calls") or ()]
    figures["said_as_learned"] = (reply.get("content") or "").strip() == tiny.ANSWER.partition("<tool_call>")[0].strip()
    figures["token_ids"] = len(first["choices"][0].get("token_ids") or ())
    call = (reply.get("tool_calls") or [{"id": "none"}])[0]
    observed = {"role": "tool", "tool_call_id": call["id"], "content": "ok .214 compile .198 floor .120 regs 40"}
    second = _ask(state, messages=[*messages, reply, observed], tools=tiny.TOOLS, max_tokens=16)
    figures["second_turn_tokens"] = second["usage"]["completion_tokens"]


def _demand(state: ServerState, figures: dict[str, Any]) -> None:
    """Requires a tool call, which the server's grammar makes well-formed whatever the model knows."""
    how: dict[str, Any] = {
        "tools": tiny.strict_tools(),
        "tool_choice": {"type": "function", "function": {"name": "evaluate"}},
    }
    messages = [message.openai() for message in tiny.QUESTION]
    answer = _ask(state, messages=messages, max_tokens=200, temperature=0, **how)
    figures["demanded_call"] = [call["function"] for call in answer["choices"][0]["message"].get("tool_calls") or ()]


def _count(state: ServerState, figures: dict[str, Any], at_once: list[int]) -> None:
    """Tokens per second with several requests at once, each time in the second round: as chat, and with vLLM also as
    completions of a prompt with token ids and log-probabilities."""

    def chat(number: int) -> int:
        messages = [{"role": "user", "content": f"case {number}"}]
        answer = _ask(state, messages=messages, max_tokens=_TOKENS, ignore_eos=True, temperature=1.0)
        return int(answer["usage"]["completion_tokens"])

    def complete(number: int) -> int:
        body = {"prompt": f"case {number}", "max_tokens": _TOKENS, "ignore_eos": True, "temperature": 1.0}
        answer = _ask(state, "completions", **body, logprobs=0, return_token_ids=True)
        return len(answer["choices"][0]["token_ids"])

    for name, one in {"chat": chat, "with_logprobs": complete}.items():
        if name == "with_logprobs" and state.engine != "vllm":
            continue
        for many in at_once:
            with ThreadPoolExecutor(many) as threads:
                for _ in range(2):
                    began = time.monotonic()
                    tokens = sum(threads.map(one, range(many)))
                    figures[f"tokens_per_s_{name}_{many}_at_once"] = round(tokens / (time.monotonic() - began))


def _ask(state: ServerState, path: str = "chat/completions", **body: Any) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {state.key}"}
    data = json.dumps({"model": state.model, **body}).encode()
    request = urllib.request.Request(f"{state.url}/{path}", data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        document: dict[str, Any] = json.load(answer)
    return document


def _free() -> int:
    memory = gpu_memory()
    return memory.free if memory else 0


def _since(began: float) -> float:
    return round(time.monotonic() - began, 2)


if __name__ == "__main__":
    main()
