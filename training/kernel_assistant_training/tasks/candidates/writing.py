"""Writes calls of operators, one after another, as the source of a task, and runs the source on the meta device, where
nothing is computed."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernel_assistant_training.tasks.candidates.arguments import Extra, Value
from kernel_assistant_training.tasks.candidates.operators import Use
from kernel_assistant_training.tasks.records import BATCH_LINE

#: The batch size on the meta device: a prime, so that a result's first dimension shows whether it is the batch.
META_BATCH = 7
_IMPORTS = ("import torch", "import torch.nn.functional as F", "from torch import nn")


@dataclass
class Draft:
    """A task under construction: the first input, the expression `draw` that draws it, and the calls `uses` of
    operators. `links[index][number]` is the name of the earlier value that is further operand `number` of call `index`.
    `firsts` are the indices of calls with several results, of which only the first is passed on."""

    first: Value
    draw: str
    uses: list[Use] = field(default_factory=list)
    links: dict[int, dict[int, str]] = field(default_factory=dict)
    firsts: set[int] = field(default_factory=set)

    def text(self, batch: int, head: tuple[str, ...] = ()) -> str:
        """Returns the source of the task, with the batch size `batch`; `head` are comment lines at its top."""
        inputs, body, inits = [("x0", Extra(self.first.shape[1:], self.draw))], [], []
        name = "x0"
        for index, use in enumerate(self.uses):
            links = self.links.get(index, {})
            operands = []
            for number, extra in enumerate(use.extra):
                if number not in links:
                    inputs.append((f"x{len(inputs)}", extra))
                operands.append(links.get(number, inputs[-1][0]))
            written = use.call.format(*operands, x=name, self=f"self.op{index}")
            if use.init:
                inits.append(f"        self.op{index} = {use.init}")
            name = f"v{index}"
            body.append(f"        {name} = {written}{'[0]' if index in self.firsts else ''}")
        drawn = ", ".join(_drawn(extra) for _, extra in inputs)
        imports = sorted({*_IMPORTS, *(line for use in self.uses for line in use.imports)})
        lines = [*(f"# {line}" for line in head), *imports, "", f"BATCH = {batch}", "", "", "class Model(nn.Module):"]
        lines += ["    def __init__(self):", "        super().__init__()", *inits, ""]
        lines += [f"    def forward(self, {', '.join(one for one, _ in inputs)}):", *body, f"        return {name}", ""]
        lines += [
            "",
            "def get_inputs():",
            f"    return [{drawn}]",
            "",
            "",
            "def get_init_inputs():",
            "    return []",
            "",
        ]
        return "\n".join(lines)


def _drawn(extra: Extra) -> str:
    sizes = [*(() if extra.whole else ("BATCH",)), *map(str, extra.shape)]
    return extra.draw.format(shape=", ".join(sizes))


def with_batch(text: str, batch: int) -> str:
    return re.sub(BATCH_LINE, f"BATCH = {batch}", text, count=1, flags=re.MULTILINE)


def batch_of(text: str) -> int | None:
    match = re.search(BATCH_LINE, text, flags=re.MULTILINE)
    return int(match[1]) if match else None


def on_meta(text: str) -> list[torch.Tensor]:
    """Runs a source that this package wrote on the meta device, where nothing is computed, and returns its output
    tensors. Raises TypeError if an output is no tensor, and any error of the source."""
    names: dict[str, Any] = {"__name__": "task"}
    with torch.device("meta"), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        exec(compile(with_batch(text, META_BATCH), "task", "exec"), names)
        outputs = names["Model"](*names["get_init_inputs"]()).eval()(*names["get_inputs"]())
    leaves = tree_leaves(outputs)
    if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise TypeError("the output is no tensor")
    return leaves
