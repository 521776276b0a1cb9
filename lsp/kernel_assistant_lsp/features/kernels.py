"""Adds a comment above the sources of a job's kernels: measurements, and the operators that the kernels replace.
Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from kernel_assistant.environment.builds.headers import shipped
from kernel_assistant.records import Launch, OpGraph, Plan
from kernel_assistant.store import JobRow
from kernel_assistant_lsp.features.hover import about_job

_FOLDER = "sources/"
#: Number of operators that are named; longer lists are cut.
_MOST_OPERATORS = 12
#: Width of a comment in characters: it fits into an editor's peek view.
_WIDTH = 72


def own_sources(texts: Mapping[str, str]) -> dict[str, str]:
    """Returns a map from name to text of the sources that were written for this job. The headers `ka/*.h`, which come
    with this package, are left out."""
    named = {name.removeprefix(_FOLDER): text for name, text in texts.items()}
    return {name: text for name, text in named.items() if name not in shipped()}


def annotated(row: JobRow, sources: Mapping[str, str], plan: Plan, graph: OpGraph | None) -> dict[str, str]:
    """Return a map from name to source, each with a comment above it about its job and launches. `row` must have a
    result."""
    head = [line for paragraph in about_job(row) for line in _plain(paragraph).split("\n")]
    if graph is not None:
        head.append(f"replaces: {_operators(graph, plan)}")
    commented = {}
    for name, text in sources.items():
        launches = [_launch(one, plan.target) for one in plan.launches if one.is_kernel and one.symbol in text]
        lines = [*head, *([f"launched: {', '.join(launches)}"] if launches else [])]
        commented[name] = "".join(f"// {part}\n" for line in lines for part in _wrapped(line)) + f"\n{text}"
    return commented


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, _WIDTH, subsequent_indent="  ", break_long_words=False) or [""]


def _operators(graph: OpGraph, plan: Plan) -> str:
    """Returns the names of the ATen operators of the forward, in order, without overload names. Operators that PyTorch
    still runs itself are left out."""
    names = (node.op.partition(".")[0] for node in graph.nodes if node.name not in plan.residual)
    return _listed(dict.fromkeys(names))


def _listed(names: Iterable[str]) -> str:
    items = list(names)
    more = f" and {len(items) - _MOST_OPERATORS} more" if len(items) > _MOST_OPERATORS else ""
    return ", ".join(items[:_MOST_OPERATORS]) + more


def _launch(launch: Launch, target: str) -> str:
    if target != "cuda":
        return launch.symbol
    return f"{launch.symbol}<<<({', '.join(launch.grid)}), ({', '.join(launch.block)})>>>"


def _plain(markdown: str) -> str:
    return markdown.replace("**", "").replace("`", "").strip("*")
