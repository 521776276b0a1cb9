"""TokenClient: a small model behind a server that takes prompts as tokens (vLLM). Tokens in, tokens out.

What the model sampled goes back as it came, and nothing is tokenised twice: the prompt of a turn is that of the turn
before, the tokens of its reply, and what was said since. The server renders no template and reads no calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_assistant.policy.chat import ChatClient, ChatSettings, library
from kernel_assistant.policy.chat_stream import Collected, CollectedText
from kernel_assistant.policy.client import PolicyError, Request
from kernel_assistant.policy.embedded import temperature_for
from kernel_assistant.serving.template import Piece, assemble, pieces, without_control

if TYPE_CHECKING:
    from openai import AsyncStream

ASK_SECONDS = 20.0
#: Words of vLLM beside those of OpenAI. The distribution is the model's own: what is sampled from is, but for the
#: temperature, what the log-probabilities are of.
WORDS_OF_VLLM: dict[str, Any] = {
    "return_token_ids": True,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "add_special_tokens": False,
}


def takes_tokens(url: str, key: str, model: str) -> bool:
    """Whether a server turns text into tokens as vLLM does, and so takes them too. One that cannot say so does not."""
    openai = library()
    client = openai.OpenAI(base_url=url, api_key=key or "none", timeout=ASK_SECONDS, max_retries=1)
    try:
        return bool(_ids_of(client.post(_tokenizer(url), cast_to=object, body=_question(model, "a"))))
    except (openai.OpenAIError, ValueError, PolicyError):
        return False
    finally:
        client.close()


class TokenClient(ChatClient):
    """See `ModelClient` and `ChatClient`; temperatures are those of the embedded model."""

    def __init__(self, settings: ChatSettings) -> None:
        super().__init__(settings)
        self._known: dict[str, tuple[int, ...]] = {}

    async def prompt(self, request: Request) -> list[int]:
        """The tokens of a prompt. Raises what the client raises, and ValueError for an odd answer."""
        parts = [
            piece if piece.ids is not None else Piece(piece.text, piece.special, await self._tokens(piece))
            for piece in pieces(request.messages, tools=request.tools)
        ]
        return assemble(parts, lambda piece: piece.ids or ())

    async def _begin(self, request: Request) -> tuple[AsyncStream[Any], Collected]:
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
        return stream, CollectedText()

    def _speaks_plainer(self, error: Exception) -> bool:
        """Whoever turns text into tokens knows the words."""
        return False

    async def _tokens(self, piece: Piece) -> tuple[int, ...]:
        """Of a control token the one that it is; of text what it is as text, whatever it says."""
        ids: tuple[int, ...] = ()
        for stretch in [piece.text] if piece.special else without_control(piece.text):
            if stretch not in self._known:
                where, body = _tokenizer(self._settings.url), _question(self._settings.model, stretch)
                self._known[stretch] = _ids_of(await self._client.post(where, cast_to=object, body=body))
            ids += self._known[stretch]
        return ids


def _tokenizer(url: str) -> str:
    """It lies beside the versions of the protocol."""
    return f"{url.rstrip('/').removesuffix('/v1')}/tokenize"


def _question(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "prompt": text, "add_special_tokens": False}


def _ids_of(answer: object) -> tuple[int, ...]:
    found = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(found, list) or not all(isinstance(number, int) for number in found):
        raise PolicyError("nonsense", "the server does not say which tokens a text has", "is it vLLM?")
    return tuple(found)
