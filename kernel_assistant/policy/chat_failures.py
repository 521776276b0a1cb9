"""Names the ways in which an endpoint can fail."""

from __future__ import annotations

from kernel_assistant.policy.client import PolicyError

#: Failures that usually pass. `refused` and `context` do not: the same request would be refused again.
_PASSING = ("unreachable", "timeout", "server", "truncated", "nonsense")
_TOO_LONG = ("context length", "context_length", "maximum context", "too long", "too many tokens", "exceeds the")
#: 4xx status codes that mean "try later".
_LATER = (408, 409, 425, 429)


def is_worth_retrying(error: PolicyError) -> bool:
    return error.kind in _PASSING


def refuses_words(error: Exception) -> bool:
    """Whether the endpoint may have refused the request because of fields that it does not know."""
    import openai

    text = str(error).lower()
    return isinstance(error, (openai.BadRequestError, openai.UnprocessableEntityError)) and not _is_too_long(text)


def failure_of(error: Exception, url: str) -> PolicyError:
    """The named failure for an exception of the client, of HTTP, or of parsing the reply."""
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
    text = str(getattr(error, "message", "")).strip()[:300]
    if status >= 500 or status in _LATER:
        return PolicyError("server", f"{url} answered {status}: {text}", "see its log")
    if _is_too_long(text.lower()):
        return PolicyError("context", f"{url}: {text}", "name a smaller context, or a model with a longer one")
    return PolicyError("refused", f"{url} answered {status}: {text}", "check the address, the model's name and the key")


def _is_too_long(text: str) -> bool:
    return any(words in text for words in _TOO_LONG)


def _nonsense(url: str, error: Exception) -> PolicyError:
    return PolicyError(
        "nonsense", f"{url} does not speak OpenAI's protocol: {str(error)[:200]}", "does the address end in /v1?"
    )
