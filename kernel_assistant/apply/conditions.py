"""Describes in words for which calls the kernels run, according to the conditions that the guard (generated code in the
package) checks before each call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel_assistant.worker.applied.parts import Parts, sizes_of

_TYPES = {
    "f64": "float64",
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "b1": "bool",
}


def runs_when(provenance: dict[str, Any]) -> str:
    """Returns one line for the user that lists the conditions under which the kernels run. `provenance` is the content
    of the class's `provenance.json`."""
    return f"runs when: {', '.join(_conditions(provenance))}; otherwise your own code"


def written_provenances(package: Path, class_name: str) -> list[dict[str, Any]]:
    """Returns the contents of all `provenance.json` of a class in its package; there is one for each size of its
    instances (`sizes.py`)."""
    parts = Parts(str(package), class_name)
    return [dict(json.loads(parts.read(f"{size}provenance.json"))) for size in sizes_of(parts)]


def _conditions(provenance: dict[str, Any]) -> Iterator[str]:
    guard, target = provenance["guard"], provenance["target"]
    training = guard["attributes"].get("", {}).get("training")
    if training is not None:
        yield "training mode" if training == "True" else "eval mode"
    yield "no gradient"
    yield "no autocast"
    inputs = [value["spec"] for value in guard["inputs"] if value["kind"] == "input"]
    yield f"inputs on the {'GPU' if target == 'cuda' else 'CPU'}"
    types = list(dict.fromkeys(_TYPES.get(spec["dtype"], spec["dtype"]) for spec in inputs))
    if types:
        yield f"of {' and '.join(types)}"
    if inputs:
        yield f"shaped {' and '.join('(' + ', '.join(spec['shape']) + ')' for spec in inputs)}"
    yield "contiguous" if all(spec.get("strides") is None for spec in inputs) else "laid out as declared"
    copied = " or copied" if guard.get("unaligned") == "copy" else ""
    yield f"aligned to {guard['alignment']} bytes{copied}"
    yield from _sizes(guard, inputs)
    if guard["compiled_parent"] == "original":
        yield "not where torch.compile compiles what calls it"
    yield "attributes, parameters and hooks as they were"


def _sizes(guard: dict[str, Any], inputs: list[dict[str, Any]]) -> Iterator[str]:
    names = {size for spec in inputs for size in spec["shape"]}
    for name, (low, high) in guard["ranges"].items():
        if name in names and low is not None and low == high:
            yield f"{name} = {low}"
        elif name in names and high is not None:
            yield f"{name} from {low or 0} to {high}"
    if guard["min_elements"]:
        yield f"at least {guard['min_elements']} elements"
