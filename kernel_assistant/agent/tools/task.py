"""Tools about the task itself. The loop does the work of `evaluate` and `finish`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from kernel_assistant.agent.tools.base import Tool, ToolContext
from kernel_assistant.records.codec import Record


class ProfileReferenceArguments(Record, frozen=True, kw_only=True):
    """Times of the reference: eager PyTorch, torch.compile, and what the device allows at best, with bytes moved."""


class EvaluateArguments(Record, frozen=True, kw_only=True):
    """Compile, verify and time the candidate in the workspace. The report says what to mend, or how fast it is."""

    tier: Annotated[
        Literal["quick", "full"],
        Meta(description="'quick' steers the search; 'full' verifies at more inputs and shapes and takes seconds more"),
    ] = "quick"
    counters: Annotated[
        bool,
        Meta(description="also read the GPU's hardware counters, which takes seconds more; not every machine has them"),
    ] = False


class FinishArguments(Record, frozen=True, kw_only=True):
    """End the work. The fastest verified candidate of all is taken, whatever is in the workspace now."""

    summary: Annotated[str, Meta(description="what was tried and what worked, in one line")] = ""


def profile_reference(arguments: ProfileReferenceArguments, context: ToolContext) -> str:
    baseline = context.baseline()
    compiled = baseline.compile_ms
    lines = [f"eager {baseline.eager_ms:.4g} ms"]
    if compiled is not None:
        lines.append(f"torch.compile {compiled:.4g} ms")
    if baseline.floor_ms:
        share = f", torch.compile reaches {baseline.floor_ms / compiled:.0%} of it" if compiled else ""
        lines.append(f"floor (roofline) {baseline.floor_ms:.4g} ms{share}")
    facts = {
        name: context.facts[name]
        for name in ("input_bytes", "parameter_bytes", "output_bytes")
        if name in context.facts
    }
    lines += [f"{name.replace('_', ' ')} {value}" for name, value in facts.items()]
    if context.device.copy_bandwidth:
        lines.append(f"copy bandwidth {context.device.copy_bandwidth / 1e9:.0f} GB/s, measured")
    return "\n".join(lines)


EVALUATE = Tool("evaluate", EvaluateArguments)
FINISH = Tool("finish", FinishArguments)
TOOLS = (Tool("profile_reference", ProfileReferenceArguments, profile_reference), EVALUATE, FINISH)
