"""What serving costs: `python bench/serving.py --out FOLDER [--engine vllm]`. Needs transformers and the engine.

Makes a Llama of ten million weights that knows one conversation by heart, writes it as 8-bit GGUF, serves that as
`kernel-assistant serve` does, has the conversation with its tool call, and counts tokens. What it starts ends with it.
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
from kernel_assistant.serving.state import ServerState, stop_running  # noqa: E402
from tests.serving import tiny  # noqa: E402

_TOKENS = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for serving.json")
    parser.add_argument("--engine", default="auto", help="auto, vllm or llama.cpp")
    parser.add_argument("--share", type=float, default=0.1, help="of the GPU's memory")
    parser.add_argument("--at-once", type=int, default=64, help="conversations of the throughput test")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        gguf = _make(Path(folder), figures)
        settings = resolve()[0]
        free_before = _free()
        request = ServeRequest(model=str(gguf), engine=arguments.engine, context=2048, gpu_memory_share=arguments.share)
        began = time.monotonic()
        state = serve_detached(request, settings, lambda told: print(told.status.value, flush=True))
        try:
            figures |= {"engine": state.engine, "ready_s": state.ready_seconds, "serve_s": _since(began)}
            figures["gpu_gib"] = round((free_before - _free()) / 2**30, 2)
            _converse(state, figures)
            _count(state, figures, arguments.at_once)
        finally:
            began = time.monotonic()
            stop_running(settings)
            figures |= {"stop_s": _since(began), "gpu_gib_after": round((free_before - _free()) / 2**30, 2)}
            arguments.out.mkdir(parents=True, exist_ok=True)
            (arguments.out / "serving.json").write_text(json.dumps(figures, indent=1))
            print(json.dumps(figures, indent=1), flush=True)
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
    """The scripted conversation: a tool call that the model chooses, its result, then a call that is demanded."""
    messages = [message.openai() for message in tiny.QUESTION]
    first = _chat(state, messages=messages, tools=tiny.TOOLS, temperature=0, max_tokens=200, return_token_ids=True)
    said = first["choices"][0]["message"]
    figures["tool_calls"] = [call["function"] for call in said.get("tool_calls") or ()]
    figures["said_as_learned"] = (said.get("content") or "").strip() == tiny.ANSWER.partition("<tool_call>")[0].strip()
    figures["token_ids"] = len(first["choices"][0].get("token_ids") or ())
    call = (said.get("tool_calls") or [{"id": "none"}])[0]
    messages += [
        said,
        {"role": "tool", "tool_call_id": call["id"], "content": "ok .214 compile .198 floor .120 regs 40"},
    ]
    second = _chat(state, messages=messages, tools=tiny.TOOLS, max_tokens=16)
    figures["second_turn_tokens"] = second["usage"]["completion_tokens"]
    demanded = {"type": "function", "function": {"name": "evaluate"}}
    third = _chat(
        state, messages=messages, tools=tiny.strict_tools(), tool_choice=demanded, max_tokens=200, temperature=0
    )
    figures["demanded_call"] = [call["function"] for call in third["choices"][0]["message"].get("tool_calls") or ()]


def _count(state: ServerState, figures: dict[str, Any], at_once: int) -> None:
    """Tokens a second: one conversation, then many at once; the second round counts."""

    def one(number: int) -> int:
        messages = [{"role": "user", "content": f"case {number}"}]
        answer = _chat(state, messages=messages, max_tokens=_TOKENS, ignore_eos=True, temperature=1.0)
        return int(answer["usage"]["completion_tokens"])

    one(0)
    began = time.monotonic()
    figures["tokens_per_s_alone"] = round(one(1) / (time.monotonic() - began))
    with ThreadPoolExecutor(at_once) as threads:
        for _ in range(2):
            began = time.monotonic()
            tokens = sum(threads.map(one, range(at_once)))
            figures[f"tokens_per_s_{at_once}_at_once"] = round(tokens / (time.monotonic() - began))


def _chat(state: ServerState, **body: Any) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {state.key}"}
    data = json.dumps({"model": state.model, **body}).encode()
    request = urllib.request.Request(f"{state.url}/chat/completions", data=data, headers=headers)
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
