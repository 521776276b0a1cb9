"""Classifies the ways in which a request to an endpoint can fail."""

from __future__ import annotations

import re

from kernel_assistant.policy.client import PolicyError

#: Failures that usually pass. `refused` and `context` do not: the same request would be refused again.
_PASSING = ("unreachable", "timeout", "busy", "server", "truncated", "nonsense")
_TOO_LONG = ("context length", "context_length", "maximum context", "too long", "too many tokens", "exceeds the")
#: 4xx status codes that mean "try later", and those of a server that has too much to do.
_LATER = (408, 409, 425)
_BUSY = (429, 529)
#: Words of a 429 that waiting does not change: the account has no credit.
_NO_CREDIT = ("insufficient_quota", "insufficient quota", "billing", "credit")
#: What to do about a status code.
_STEPS = {
    401: "the key is wrong or missing: set KERNEL_ASSISTANT_API_KEY, or what models add --key-variable names",
    402: "the account has no credit: add some, or use another model (kernel-assistant models list)",
    403: "the key may not use this model: use another key, or another model (kernel-assistant models list)",
    404: "there is no such model or address: check --model and the URL, which ends in /v1",
}
#: Keys as servers repeat them, perhaps with their middle left out.
_KEY = re.compile(r"\b(?:sk|pk|key|hf|gsk|xai)[-_][\w*.-]{6,}|(?<=Bearer )\S+")


def is_worth_retrying(error: PolicyError) -> bool:
    return error.kind in _PASSING


def refuses_tools(error: Exception) -> bool:
    """Whether the endpoint refused the request because of its tools: the model cannot call tools, or the server cannot
    parse the calls."""
    import openai

    return isinstance(error, openai.APIStatusError) and "tool" in str(error).lower()


def refuses_words(error: Exception) -> bool:
    """Whether the endpoint may have refused the request because of optional fields that the endpoint does not know."""
    import openai

    text = str(error).lower()
    return isinstance(error, (openai.BadRequestError, openai.UnprocessableEntityError)) and not _is_too_long(text)


def failure_of(error: Exception, url: str) -> PolicyError:
    """Returns the `PolicyError` that describes an exception of the openai client, of HTTP, or of parsing the reply.
    `url` is the endpoint."""
    import httpx2
    import openai

    if isinstance(error, PolicyError):
        return error
    if isinstance(error, openai.APIStatusError):
        return _of_status(error, url)
    if isinstance(error, (openai.APITimeoutError, TimeoutError)):
        return PolicyError("timeout", f"{url} said nothing for too long", "see its log, or whether it is overloaded")
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        if isinstance(cause, (httpx2.RemoteProtocolError, httpx2.ReadError)):
            return _broken_off(url, cause)
        return PolicyError("unreachable", f"{url} cannot be reached: {cause}", "check the address and whether it runs")
    if isinstance(error, openai.APIResponseValidationError):
        return _nonsense(url, error)
    if isinstance(error, openai.APIError):
        return PolicyError("server", f"{url} failed in the middle of a reply: {error.message}", "see its log")
    if isinstance(error, (openai.OpenAIError, ValueError)):
        return _nonsense(url, error)
    return _broken_off(url, error)


def _broken_off(url: str, error: BaseException) -> PolicyError:
    return PolicyError("truncated", f"{url} broke off: {type(error).__name__} {error}".strip(), "see its log")


def _of_status(error: object, url: str) -> PolicyError:
    status = int(getattr(error, "status_code", 0))
    body = getattr(error, "body", None)
    said = (body.get("message") if isinstance(body, dict) else None) or getattr(error, "message", "")
    text = masked(str(said).strip())[:300]
    cause = f"{url} answered {status}: {text}"
    if status in _BUSY:
        if any(words in text.lower() for words in _NO_CREDIT):
            return PolicyError("refused", cause, _STEPS[402])
        return PolicyError("busy", cause, "it is overloaded, or allows fewer requests", after=_seconds_to_wait(error))
    if status >= 500 or status in _LATER:
        return PolicyError("server", cause, "see its log", after=_seconds_to_wait(error))
    if _is_too_long(text.lower()):
        return PolicyError("context", f"{url}: {text}", "name a smaller context, or a model with a longer one")
    return PolicyError("refused", cause, _STEPS.get(status, "check the address, the model's name and the key"))


def masked(text: str) -> str:
    """Returns the text without API keys, because some servers repeat them in error messages."""
    return _KEY.sub("…", text)


def _seconds_to_wait(error: object) -> float:
    """Returns the seconds that the header `Retry-After` names; 0 if it is missing or a date."""
    said = getattr(getattr(error, "response", None), "headers", {}).get("retry-after", "")
    try:
        return max(0.0, float(said))
    except ValueError:
        return 0.0


def _is_too_long(text: str) -> bool:
    return any(words in text for words in _TOO_LONG)


def _nonsense(url: str, error: Exception) -> PolicyError:
    return PolicyError(
        "nonsense", f"{url} does not speak OpenAI's protocol: {str(error)[:200]}", "does the address end in /v1?"
    )
