"""What was verified, read from the files of a class: `plan.json` and `provenance.json`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

SCHEMA = "kernel-assistant/applied/1"
#: Folders inside that of a class whose kernels are for instances of other sizes begin so.
SIZE = "size_"


@dataclass(frozen=True)
class Contract:
    """`inputs` are the user's tensors and then the parameters and buffers that the kernels read, as graph values;
    `order` says which of them the plan's inputs are. `paths` are the dotted names of the latter."""

    folder: str
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

    @property
    def target(self) -> str:
        return str(self.plan["target"])

    @property
    def user_inputs(self) -> list[str]:
        return [value["name"] for value in self.inputs if value["kind"] == "input"]


def kernel_folders(folder: str) -> list[str]:
    """The folder of a class, then those inside it for instances of other sizes."""
    inner = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.startswith(SIZE)]
    return [folder, *(path for path in inner if os.path.isfile(os.path.join(path, "provenance.json")))]


def read_contract(folder: str) -> Contract:
    """Read the files of one class. Raises OSError, ValueError or KeyError where they are not ours or are damaged."""
    plan = _read(folder, "plan.json")
    provenance = _read(folder, "provenance.json")
    if provenance["schema"] != SCHEMA:
        raise ValueError(f"provenance.json has the schema {provenance['schema']!r}, this loader reads {SCHEMA!r}")
    guard = provenance["guard"]
    wanted = [spec["name"] for spec in plan["inputs"]]
    users = [value for value in guard["inputs"] if value["kind"] == "input"]
    held = [value for value in guard["inputs"] if value["kind"] != "input" and value["name"] in wanted]
    names = [value["name"] for value in (*users, *held)]
    return Contract(
        folder=folder,
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
    )


def _read(folder: str, name: str) -> dict[str, Any]:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        found = json.load(file)
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not a JSON object")
    return found
