"""An endpoint with OpenAI's protocol over HTTP; its answers are scripted."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler"], None]
CONTROL = {"<|im_start|>": [1001], "<|im_end|>": [1002]}


class Handler(BaseHTTPRequestHandler):
    """One request: its body is kept, and the next answer of the script is sent."""

    server: Endpoint

    def do_POST(self) -> None:
        self.body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/tokenize":
            self.tokenize() if self.server.takes_tokens else fails(404)(self)
            return
        self.server.bodies.append(self.body)
        self.server.keys.append(self.headers.get("authorization", ""))
        self.server.answers.pop(0)(self)

    def do_GET(self) -> None:
        listed = [{"id": name, "object": "model", **facts} for name, facts in self.server.models.items()]
        self.begin(200, "application/json")
        self.wfile.write(json.dumps({"object": "list", "data": listed}).encode())

    def tokenize(self) -> None:
        """Tokenises as vLLM does: control tokens are recognized in any text. All other characters are a token each."""
        ids: list[int] = []
        for part in re.split("(<[|]im_start[|]>|<[|]im_end[|]>)", self.body["prompt"]):
            ids += CONTROL.get(part) or map(ord, part)
        self.begin(200, "application/json")
        self.wfile.write(json.dumps({"tokens": ids}).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Writes nothing to stderr."""

    def begin(self, status: int = 200, kind: str = "text/event-stream", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def event(self, document: dict[str, Any] | str) -> None:
        text = document if isinstance(document, str) else json.dumps(document)
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()


class Endpoint(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.takes_tokens = False
        self.models: dict[str, dict[str, Any]] = {"small": {"max_model_len": 32_000}}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


@contextmanager
def served() -> Iterator[Endpoint]:
    """An endpoint that exists within the block."""
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def chunk(delta: dict[str, Any], finish: str | None = None, **extra: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **extra}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def usage(prompt: int, completion: int) -> dict[str, Any]:
    counted = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": counted}


def streams(*documents: dict[str, Any] | str) -> Answer:
    """A stream of these documents, as they are."""

    def answer(request: Handler) -> None:
        request.begin()
        for document in documents:
            request.event(document)

    return answer


def says(*deltas: dict[str, Any], finish: str = "stop") -> Answer:
    """A complete stream of a reply."""
    return streams(*map(chunk, deltas), chunk({}, finish), usage(120, len(deltas)), "[DONE]")


def samples(ids: Sequence[int], finish: str | None = "stop", logprobs: int | None = None) -> Answer:
    """A streamed completion with a token in each chunk; all have log-probabilities, or only the first `logprobs`."""
    documents: list[dict[str, Any] | str] = []
    for position, number in enumerate(ids):
        given = {"token_logprobs": [-0.25 * position]} if logprobs is None or position < logprobs else None
        words = "" if number > 1000 else chr(number)
        documents.append(completion(words, token_ids=[number], logprobs=given))
    return streams(*documents, *([completion("", finish), "[DONE]"] if finish else []))


def completion(text: str, finish: str | None = None, **extra: Any) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": None, **extra}
    return {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}


def calling(*wanted: tuple[str, dict[str, Any]]) -> Answer:
    """A stream with tool calls."""
    functions = [{"name": name, "arguments": json.dumps(how)} for name, how in wanted]
    parts = [{"index": n, "id": f"id{n}", "type": "function", "function": one} for n, one in enumerate(functions)]
    return says({"tool_calls": parts}, finish="tool_calls")


def held(begun: threading.Event, gone: threading.Event, *, writes: bool = True) -> Answer:
    """A reply that begins with a word, if `writes`, and then waits; `gone` is set when the client has left."""

    def answer(request: Handler) -> None:
        if writes:
            request.begin()
            request.event(chunk({"content": "a"}))
        begun.set()
        request.connection.settimeout(60)
        if request.connection.recv(1) == b"":
            gone.set()

    return answer


def text(words: str) -> Answer:
    return says(*({"content": word} for word in words.split(" ")))


def whole(message: dict[str, Any], finish: str = "stop") -> Answer:
    """A reply as one JSON document, of a server that does not stream."""

    def answer(request: Handler) -> None:
        request.begin(kind="application/json; charset=utf-8")
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        counted = {"prompt_tokens": 120, "completion_tokens": 7, "total_tokens": 127}
        document = {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": counted}
        request.wfile.write(json.dumps(document).encode())

    return answer


def fails(status: int, message: str = "no", **headers: str) -> Answer:
    def answer(request: Handler) -> None:
        request.begin(status, "application/json", **headers)
        request.wfile.write(json.dumps({"error": {"message": message, "code": status}}).encode())

    return answer
