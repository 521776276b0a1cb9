"""Writes results of the filter as Parquet shards with a data card, and reads shards."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kernel_assistant.errors import MissingError, StoreError, boundary
from kernel_assistant.records import OpGraph
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant_training.tasks.records import FilterResult, Reason

ROWS = 2000
CARD = "DATA_CARD.md"
_NO_PYARROW = "pip install 'kernel-assistant[train]'"


def arrow() -> Any:
    """Imports pyarrow with its Parquet part and returns it. Raises MissingError if it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingError("pyarrow is not installed", _NO_PYARROW) from error
    return pyarrow


def task_schema() -> Any:
    """Returns the pyarrow schema of a task. `operators` are the declared operators, `graph` is the OpGraph as JSON,
    `eager_ms` is the time of a call in milliseconds."""
    pa = arrow()
    words = pa.list_(pa.string())
    return pa.schema(
        {
            "key": pa.string(),
            "number": pa.int64(),
            "source": pa.string(),
            "split": pa.string(),
            "target": pa.string(),
            "operators": words,
            "operator_count": pa.int32(),
            "attribution": words,
            "text": pa.string(),
            "graph": pa.string(),
            "eager_ms": pa.float64(),
            "seed": pa.int64(),
        }
    )


def write_tasks(out: Path, verdicts: Iterable[FilterResult], target: str, seed: int) -> list[Path]:
    """Writes the tasks that passed the filter as shards in the folder `out`, ordered by number, each key once. Returns
    the files. Raises StoreError if they cannot be written."""
    import msgspec

    rows: dict[str, dict[str, Any]] = {}
    for one in sorted(verdicts, key=lambda verdict: verdict.number):
        if one.reason is Reason.passed and one.graph is not None:
            row = {name: getattr(one, name) for name in ("key", "number", "source", "split", "text", "eager_ms")}
            row |= {"operators": list(one.operators), "attribution": list(one.attribution), "target": target}
            row |= {"operator_count": len(one.operators), "seed": seed}
            row["graph"] = msgspec.json.encode(to_builtins(one.graph)).decode()
            rows.setdefault(one.key, row)
    return write_shards(out, "tasks", list(rows.values()), task_schema())


def write_shards(out: Path, name: str, rows: Sequence[dict[str, Any]], schema: Any) -> list[Path]:
    """Writes the rows to `NAME-00000.parquet`, …, each under a temporary name first; returns the files. Removes further
    shards of this name that an earlier, longer run wrote. Raises StoreError if they cannot be written.
    """
    pa, paths = arrow(), list[Path]()
    with boundary(StoreError, f"{out}: shards could not be written"):
        for number, start in enumerate(range(0, len(rows), ROWS)):
            path = out / f"{name}-{number:05}.parquet"
            partial = path.with_suffix(".partial")
            table = pa.Table.from_pylist(list(rows[start : start + ROWS]), schema=schema)
            pa.parquet.write_table(table, partial, compression="zstd")
            os.replace(partial, path)
            paths.append(path)
        for old in out.glob(f"{name}-*.parquet"):
            if old not in paths:
                old.unlink()
    return paths


def read_rows(folder: Path, name: str = "tasks") -> list[dict[str, Any]]:
    """Returns the rows of all shards `name`-*.parquet of a folder, in order, as dictionaries. Raises MissingError
    without pyarrow."""
    pa = arrow()
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob(f"{name}-*.parquet")):
        rows += pa.parquet.read_table(path).to_pylist()
    return rows


def graph_of(row: dict[str, Any]) -> OpGraph:
    import msgspec

    return from_builtins(msgspec.json.decode(row["graph"]), OpGraph)


def card(verdicts: Sequence[FilterResult], about: dict[str, object], missing: dict[str, Counter[str]]) -> str:
    """Returns the data card as Markdown: how many tasks come from each source, why other candidates were left out, and
    the versions used. `verdicts` are the filter's results.

    `missing` maps the heading of a table to the number of operators or answers that became no candidate, by reason.
    """
    sources = sorted({one.source for one in verdicts})
    tried, passed = Counter(one.source for one in verdicts), [one for one in verdicts if one.reason is Reason.passed]
    kept = Counter(one.source for one in passed)
    lines = ["# Tasks", "", "Made by `python -m kernel_assistant_training synth`; docs/tasks.md says how.", ""]
    lines += [f"- {name}: {value}" for name, value in {**about, **versions()}.items()]
    lines += ["", f"{len(passed)} tasks of {len(verdicts)} candidates.", ""]
    lines += _table(
        "source",
        ("candidates", "kept", "yield"),
        [(name, tried[name], kept[name], f"{kept[name] / tried[name]:.1%}") for name in sources],
    )
    by_source = Counter((one.source, one.reason) for one in verdicts)
    reasons = [reason for reason in Reason if any(by_source[name, reason] for name in sources)]
    lines += _table(
        "left out for",
        (*sources, "all"),
        [
            (
                reason.value,
                *(by_source[name, reason] for name in sources),
                sum(by_source[name, reason] for name in sources),
            )
            for reason in reasons
        ],
    )
    counts = Counter(len(one.operators) for one in passed)
    lines += _table(
        "operators",
        ("tasks", "share"),
        [(number, counts[number], f"{counts[number] / len(passed):.1%}") for number in sorted(counts)],
    )
    splits = Counter(one.split for one in passed)
    lines += _table("split", ("tasks",), sorted(splits.items()))
    for heading, by_reason in missing.items():
        lines += _table(heading, ("count",), by_reason.most_common(25))
    return "\n".join(lines)


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that made the tasks."""
    installed = {"python": platform.python_version()}
    for package in ("torch", "transformers", "pyarrow", "kernel-assistant"):
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = "not installed"
    return installed


def _table(head: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [f"| {head} | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]
