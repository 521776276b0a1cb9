"""The contract of an applied class: the calls and modules for which its kernels were verified, read from `plan.json`
and `provenance.json`, and the updates of module buffers that it lists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .parts import Parts

SCHEMA = "kernel-assistant/applied/1"


@dataclass(frozen=True)
class Contract:
    """The calls and modules for which the kernels of one class were verified. `inputs` are values of the graph: first
    the user's tensors, then the parameters and buffers that the kernels read, whose dotted names are `paths`. `order`
    holds, for each input of the plan, its index in `inputs`. `alignment` is in bytes; `min_elements` bounds the largest
    of the user's tensors, `max_elements` every tensor."""

    parts: Parts
    size: str
    class_name: str
    plan: dict[str, Any]
    inputs: list[dict[str, Any]]
    paths: list[str]
    order: list[int]
    outputs: list[dict[str, Any]]
    ranges: dict[str, list[int | None]]
    call: dict[str, Any]
    attributes: dict[str, dict[str, str]]
    fingerprint: str
    operator: str
    cpu_flags: list[str]
    binary_flags: dict[str, list[str]]
    alignment: int
    min_elements: int
    max_elements: int
    in_compiled: bool
    in_export: bool
    reproducible: bool
    state: list[dict[str, Any]]
    copies_unaligned: bool

    @property
    def target(self) -> str:
        return str(self.plan["target"])

    @property
    def user_inputs(self) -> list[str]:
        return [value["name"] for value in self.inputs if value["kind"] == "input"]


def read_contract(parts: Parts, size: str = "") -> Contract:
    """Reads the files of one class; `size` is the prefix of their names (see parts.py). Raises OSError, ValueError or
    KeyError if they are damaged or have another format."""
    plan = _read(parts, f"{size}plan.json")
    provenance = _read(parts, f"{size}provenance.json")
    if provenance["schema"] != SCHEMA:
        raise ValueError(f"provenance.json has the schema {provenance['schema']!r}, this loader reads {SCHEMA!r}")
    guard = provenance["guard"]
    wanted = [spec["name"] for spec in plan["inputs"]]
    users = [value for value in guard["inputs"] if value["kind"] == "input"]
    held = [value for value in guard["inputs"] if value["kind"] != "input" and value["name"] in wanted]
    names = [value["name"] for value in (*users, *held)]
    return Contract(
        parts=parts,
        size=size,
        class_name=provenance["class"],
        plan=plan,
        inputs=[*users, *held],
        paths=[value["path"] for value in held],
        order=[names.index(name) for name in wanted],
        outputs=guard["outputs"],
        ranges=guard.get("ranges", {}),
        call=guard["call"],
        attributes=guard["attributes"],
        fingerprint=guard["fingerprint"],
        operator=provenance["operator"],
        cpu_flags=guard.get("cpu_flags", []),
        binary_flags=guard.get("binary_flags", {}),
        alignment=guard["alignment"],
        min_elements=guard.get("min_elements", 0),
        max_elements=guard["max_elements"],
        in_compiled=guard.get("compiled_parent", "kernel") == "kernel",
        in_export=guard.get("exported", "original") == "kernel",
        reproducible=guard.get("bit_reproducible", True),
        state=guard.get("state", []),
        copies_unaligned=guard.get("unaligned", "original") == "copy",
    )


def _read(parts: Parts, name: str) -> dict[str, Any]:
    document = json.loads(parts.read(name))
    if not isinstance(document, dict):
        raise ValueError(f"{name} is not a JSON object")
    return document


class StateUpdate:
    """Updates, after the kernels have run, the module buffers that `forward` itself changes, such as running
    statistics. It is plain Python over tuples, because `torch.compile` traces it as well.

    `state` lists the updates: `{"path": …, "output": index}` for a buffer whose new value is an output of the kernels,
    `{"path": …, "add": number}` for a counter."""

    def __init__(self, state: list[dict[str, Any]]) -> None:
        self.written = tuple((tuple(one["path"].split(".")), one["output"]) for one in state if "output" in one)
        self.added = tuple((tuple(one["path"].split(".")), one["add"]) for one in state if "add" in one)
        self.any = bool(self.written or self.added)

    def on(self, module: Any, outputs: Sequence[Any]) -> None:
        """Sets the buffers of `module` to the values that its own `forward` would have given them."""
        for path, index in self.written:
            _buffer(module, path).copy_(outputs[index])
        for path, number in self.added:
            _buffer(module, path).add_(number)


def _buffer(module: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        module = getattr(module, name)
    return module
