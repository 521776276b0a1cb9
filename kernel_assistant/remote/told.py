"""Rewrites errors of a remote machine: they name the machine, and the commands in their next steps get the options
that reach it."""

from __future__ import annotations

import re
import shlex

from kernel_assistant.config import Settings
from kernel_assistant.errors import Cancelled, HostError, KernelAssistantError

_COMMAND = re.compile(r"kernel-assistant (host stop|(?:attach|cancel|show)(?: (?:\d+|last))?+|jobs|doctor)(?! --host)")


def told(error: KernelAssistantError, settings: Settings, *, lost: bool) -> KernelAssistantError:
    """Returns a copy of `error` that names the remote machine, `settings.host`, in its cause. `lost` says that the
    connection failed."""
    cause = error.cause
    if lost and isinstance(error, HostError):
        cause = "the connection was lost; what runs there goes on"
    if not isinstance(error, Cancelled) and not cause.startswith(f"{settings.host}:"):
        cause = f"{settings.host}: {cause}"
    return type(error)(cause, there(error.next_step, settings), detail=error.detail)


def there(text: str, settings: Settings) -> str:
    """Returns `text`, in which the commands of this tool got the options that reach the remote machine and its
    interpreter."""
    text = re.sub(r"(?<![\w-])--python\b", "--remote-python", text)
    return _COMMAND.sub(lambda match: f"{match[0]} {flags(settings)}", text)


def flags(settings: Settings) -> str:
    """Returns the command-line options by which another command reaches the same remote machine and folder."""
    folder = f" --remote-dir {shlex.quote(settings.remote_dir)}" if settings.remote_dir else ""
    return f"--host {settings.host}{folder}"
