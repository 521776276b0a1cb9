"""Defines a tool: a record of arguments, from which the schema is made, and a function from that record to an
observation.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from kernel_assistant.agent.tools.workspace import Workspace
from kernel_assistant.errors import MissingError
from kernel_assistant.records import Baseline, Candidate, OpGraph
from kernel_assistant.records.codec import Record
from kernel_assistant.records.counters import KernelCounters
from kernel_assistant.sandbox.contract import Sandbox
from kernel_assistant.targets.base import DeviceFacts


class ToolError(Exception):
    """A tool call that cannot be done; its text is the observation for the model."""


def no_counters(candidate: Candidate) -> tuple[KernelCounters, ...]:
    """Raises MissingError; for episodes in which no hardware counters are read."""
    raise MissingError("no counters are read here", "")


@dataclass(frozen=True)
class ToolContext:
    """What the functions of tools may use. `device_lock` is held during a measurement; `baseline` returns the times of
    the reference and measures those that are not known yet.

    `counters` reads the hardware counters of a verified candidate; it raises MissingError if that is not possible.
    """

    workspace: Workspace
    graph: OpGraph
    device: DeviceFacts
    facts: dict[str, Any]
    sandbox: Sandbox
    baseline: Callable[[], Baseline]
    cancel: threading.Event
    counters: Callable[[Candidate], tuple[KernelCounters, ...]] = no_counters
    device_lock: threading.RLock = field(default_factory=threading.RLock)


@dataclass(frozen=True)
class Tool:
    """A tool. The docstring of the record `arguments` describes it to the model. Without `run`, the loop does the
    work."""

    name: str
    arguments: type[Record]
    run: Callable[[Any, ToolContext], str] | None = None

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The tool's schema in OpenAI's strict form: all fields are required, other fields are not allowed."""
        _, components = msgspec.json.schema_components((self.arguments,), ref_template="#/$defs/{name}")
        definition = components[self.arguments.__name__]
        properties = {
            name: {key: value for key, value in described.items() if key != "default"}
            for name, described in definition.get("properties", {}).items()
        }
        parameters = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        description = " ".join((self.arguments.__doc__ or "").split())
        function = {"name": self.name, "description": description, "parameters": parameters, "strict": True}
        return {"type": "function", "function": function}

    def read(self, arguments: str) -> Record:
        """Returns the record for a call's JSON text; fields with a default may be missing. Numbers and booleans may be
        written as strings, and strings may contain line ends. Raises ToolError."""
        try:
            values = json.loads(arguments or "{}", strict=False)
            return msgspec.convert(values, type=self.arguments, strict=False)
        except (ValueError, msgspec.ValidationError) as error:
            fields = ", ".join(self.arguments.__struct_fields__) or "none"
            raise ToolError(
                f"{self.name}: {error}; the arguments are one JSON object with the fields: {fields}"
            ) from None


def shortened(text: str, most: int) -> str:
    """Returns a text; if it is longer than `most` characters, only its beginning and its end."""
    if len(text) <= most:
        return text
    half = (most - 60) // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
