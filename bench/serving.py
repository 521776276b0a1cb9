"""Measures serving: `python bench/serving.py --out FOLDER [--engine vllm]`. Needs transformers and the engine.

Makes a Llama of ten million weights that knows one conversation by heart, writes it as 8-bit GGUF, serves that as
`kernel-assistant serve` does, has the conversation with its tool call, and counts tokens. What it starts ends with it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from kernel_assistant.config import resolve
from kernel_assistant.serving.convert_run import convert
from kernel_assistant.serving.plan import gpu_memory
from kernel_assistant.serving.request import ServeRequest
from kernel_assistant.serving.server import serve_detached
from kernel_assistant.serving.state import ServerState, stop_running
from tests.serving import tiny

_TOKENS = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for serving.json")
    parser.add_argument("--engine", default="auto", help="auto, vllm or llama.cpp")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 64], help="requests at once, one figure for each")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            _measure(arguments, Path(folder), figures)
    finally:
        (arguments.out / "serving.json").write_text(json.dumps(figures, indent=1))
        print(json.dumps(figures, indent=1), flush=True)


def _measure(arguments: argparse.Namespace, folder: Path, figures: dict[str, Any]) -> None:
    gguf = _make(folder, figures)
    settings, free_before = resolve()[0], _free()
    request = ServeRequest(model=str(gguf), engine=arguments.engine, context=2048, gpu_memory_share=0.1)
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
        (arguments.out / "engine.log").write_text(Path(state.log).read_text(errors="replace")[-200_000:])


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
    choice = {"type": "function", "function": {"name": "evaluate"}}
    messages = [message.openai() for message in tiny.QUESTION]
    asked: dict[str, Any] = {"messages": messages, "tools": tiny.TOOLS, "tool_choice": choice}
    answer = _ask(state, max_tokens=200, temperature=0, **asked)
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

    for name, one in {"chat": chat, **({"with_logprobs": complete} if state.engine == "vllm" else {})}.items():
        for many in at_once:
            with ThreadPoolExecutor(many) as threads:
                for _ in range(2):
                    began = time.monotonic()
                    tokens = sum(threads.map(one, range(many)))
                    figures[f"tokens_per_s_{name}_{many}_at_once"] = round(tokens / (time.monotonic() - began))


def _ask(state: ServerState, /, path: str = "chat/completions", **body: Any) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {state.key}"}
    data = json.dumps({"model": state.model, **body}).encode()
    request = urllib.request.Request(f"{state.url}/{path}", data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.load(answer))


def _free() -> int:
    memory = gpu_memory()
    return memory.free if memory else 0


def _since(began: float) -> float:
    return round(time.monotonic() - began, 2)


if __name__ == "__main__":
    main()
