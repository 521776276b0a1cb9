"""Scripted models for the small norm of `tests/judge/kernels.py`: their sources and their replies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path

from kernel_assistant.agent.guidance import Guidance
from kernel_assistant.agent.model_policy import ConversationLimits, ModelPolicy
from kernel_assistant.agent.profiles import CompactProfile, FullProfile
from kernel_assistant.agent.tools import ToolContext
from kernel_assistant.agent.tools.workspace import Workspace
from kernel_assistant.environment.session import Environment
from kernel_assistant.events import AnyEvent
from kernel_assistant.policy.bill import Bill
from kernel_assistant.policy.client import ModelClient
from kernel_assistant.records import Evaluation, Outcome, Stage, Tier, Timing
from kernel_assistant.records.transcript import Message, ToolCall, Usage
from tests.agent.scripted import Line, ScriptedClient
from tests.common.results import accuracy_of
from tests.judge.kernels import SOURCE

LAUNCH = "// launch: norm(x=x0, w=p0, o=out0, rows=B)\n"
NORM = LAUNCH + SOURCE
WRONG = NORM.replace("1e-6f", "1e-1f")
BROKEN = NORM.replace("float sum = 0.0f;", "float sum = undeclared;")
_numbers = count()


def calls(*wanted: tuple[str, dict[str, object]], text: str = "") -> Message:
    """A reply with tool calls in OpenAI's form."""
    made = tuple(
        ToolCall(id=f"id{next(_numbers)}", name=name, arguments=json.dumps(arguments)) for name, arguments in wanted
    )
    return Message(role="assistant", content=text, tool_calls=made, usage=Usage(completion_tokens=10))


def write(source: str, path: str = "kernel.cpp") -> tuple[str, dict[str, object]]:
    return "write", {"path": path, "text": source}


EVALUATE: tuple[str, dict[str, object]] = ("evaluate", {})
FINISH: tuple[str, dict[str, object]] = ("finish", {"summary": "done"})


def hermes(name: str, arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def qwen(name: str, arguments: dict[str, object]) -> str:
    """A call as Qwen3-Coder writes it into its text."""
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


Interval = tuple[float, float] | None


def correct(
    candidate: str, tier: Tier = Tier.full, *, seconds: float = 0.0, compiled: Interval = None, eager: Interval = None
) -> Evaluation:
    """A correct evaluation, as fast as eager PyTorch, with these intervals of the speedups."""
    timing = Timing(
        candidate_ms=1.0, eager_ms=1.0, speedup_vs_eager=1.0, speedup_vs_compile_ci=compiled, speedup_vs_eager_ci=eager
    )
    known = {"outcome": Outcome.correct, "stage": Stage.profile, "message": "", "accuracy": accuracy_of()}
    return Evaluation(candidate=candidate, tier=tier, **known, timing=timing, seconds={"profile": seconds})


def world_of(environment: Environment, folder: Path) -> ToolContext:
    workspace = Workspace(folder)
    workspace.add_reference("graph.txt", environment.graph.text())
    return ToolContext(
        workspace=workspace,
        graph=environment.graph,
        device=environment.device,
        facts=environment.facts,
        sandbox=environment.sandbox,
        baseline=lambda: environment.baseline(compiled=True),
        cancel=environment.cancel,
        counters=environment.counters,
    )


def model(
    environment: Environment,
    folder: Path,
    lines: Iterable[Line] | ModelClient,
    *,
    compact: bool = False,
    limits: ConversationLimits | None = None,
    guidance: Guidance | None = None,
    steering: Sequence[str] = (),
    emit: Callable[[AnyEvent], None] = lambda event: None,
    bill: Bill | None = None,
) -> ModelPolicy:
    """A policy whose model replies with `lines`, or with the replies of another client."""
    world = world_of(environment, folder)
    full = FullProfile(environment.task, guidance or Guidance())
    profile = CompactProfile(world.workspace, environment.device.target, world.graph) if compact else full
    client = lines if hasattr(lines, "complete") else ScriptedClient(lines)
    return ModelPolicy(client, profile, world, limits or ConversationLimits(), emit, steering, bill=bill)


def observations(policy: ModelPolicy) -> list[str]:
    """The messages that the model got, from the first reply on."""
    messages = policy.transcript().messages
    return [message.content for message in messages[2:] if message.role in ("tool", "user")]
