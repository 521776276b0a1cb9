"""TokenClient: a small model behind a server that takes prompts as tokens and returns tokens (vLLM).

Sampled tokens are sent back unchanged, and nothing is tokenised twice: the prompt of a turn is the previous prompt, the
tokens of its reply, and the messages since then. The server renders no template and parses no calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_assistant.policy.chat import ChatClient, ChatSettings, library
from kernel_assistant.policy.chat_stream import StreamedReply, StreamedText
from kernel_assistant.policy.client import PolicyError, Request
from kernel_assistant.policy.embedded import temperature_for
from kernel_assistant.serving.template import PromptPiece, assemble, pieces, without_control

if TYPE_CHECKING:
    from openai import AsyncStream

ASK_SECONDS = 20.0
#: Fields of vLLM besides OpenAI's. They switch all filters off, so that the model samples from the distribution that
#: the log-probabilities belong to, except for the temperature.
WORDS_OF_VLLM: dict[str, Any] = {
    "return_token_ids": True,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "add_special_tokens": False,
}


def takes_tokens(url: str, key: str, model: str) -> bool:
    """Whether a server tokenises text as vLLM does, and so accepts tokens as well. False if it does not answer the
    request to tokenise.
    """
    openai = library()
    client = openai.OpenAI(base_url=url, api_key=key or "none", timeout=ASK_SECONDS, max_retries=1)
    try:
        return bool(_ids_of(client.post(beside(url, "tokenize"), cast_to=object, body=_question(model, "a"))))
    except (openai.OpenAIError, ValueError, PolicyError):
        return False
    finally:
        client.close()


class TokenClient(ChatClient):
    """A `ChatClient` that sends prompts as tokens. The default temperatures are those of the embedded model."""

    def __init__(self, settings: ChatSettings) -> None:
        super().__init__(settings)
        self._known: dict[str, tuple[int, ...]] = {}

    async def prompt(self, request: Request) -> list[int]:
        """Returns the prompt as token ids. Raises the errors of the openai client, and PolicyError or ValueError for an
        invalid answer of the server."""
        parts = [
            piece if piece.ids is not None else PromptPiece(piece.text, piece.special, await self._tokens(piece))
            for piece in pieces(request.messages, tools=request.tools)
        ]
        return assemble(parts, lambda piece: piece.ids or ())

    async def _begin(self, request: Request) -> tuple[AsyncStream[Any], StreamedReply]:
        stream = await self._client.completions.create(
            model=self._settings.model,
            prompt=await self.prompt(request),
            max_tokens=request.max_tokens,
            temperature=temperature_for(request, self._settings.seed),
            top_p=1.0,
            seed=self._settings.seed,
            logprobs=0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=WORDS_OF_VLLM,
        )
        return stream, StreamedText()

    def _speaks_plainer(self, error: Exception) -> bool:
        """Returns False: later requests keep all optional fields, because a server that tokenises text knows them."""
        return False

    async def _tokens(self, piece: PromptPiece) -> tuple[int, ...]:
        """Returns the id of a control token, or the ids of a text; the text of a control token inside the text stays
        plain text."""
        ids: tuple[int, ...] = ()
        for stretch in [piece.text] if piece.special else without_control(piece.text):
            if stretch not in self._known:
                where, body = beside(self._settings.url, "tokenize"), _question(self._settings.model, stretch)
                self._known[stretch] = _ids_of(await self._client.post(where, cast_to=object, body=body))
            ids += self._known[stretch]
        return ids


def beside(url: str, name: str) -> str:
    """Returns the URL of the path `name` on the server of `url`, outside the folder `/v1`."""
    return f"{url.rstrip('/').removesuffix('/v1')}/{name}"


def _question(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "prompt": text, "add_special_tokens": False}


def _ids_of(answer: object) -> tuple[int, ...]:
    ids = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(ids, list) or not all(isinstance(number, int) for number in ids):
        raise PolicyError("nonsense", "the server does not say which tokens a text has", "is it vLLM?")
    return tuple(ids)
