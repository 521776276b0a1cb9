"""Writes the table of docs/test_suite.md from results of `.ci/full`: `python -m tests.common.table FOLDER KIND…`."""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "test_suite.md"
BEGIN, END = "<!-- table of .ci/full -->\n", "<!-- end -->"
#: The last line of pytest, and lines of Node's test runner.
PYTEST = re.compile(r"^=*\s*((?:\d+ \w+(?:, )?)+) in [\d.]+s", re.MULTILINE)
TOLD = re.compile(r"\d+ (?:passed|failed|skipped|errors?)")
NODE = re.compile(r"^\S+ (pass|fail) (\d+)$", re.MULTILINE)


def row(folder: Path, kind: str) -> str:
    """One line of the table: the kind, its tests, minutes, outcome."""
    text = (folder / f"{kind}.log").read_text(errors="replace")
    seconds, code = map(int, (folder / f"{kind}.took").read_text().split())
    counts = [", ".join(TOLD.findall(match[1])) for match in PYTEST.finditer(text)]
    node = sum(int(match[2]) for match in NODE.finditer(text) if match[1] == "pass")
    tests = "; ".join([*counts, *([f"{node} passed in Node"] if node else [])])
    return f"| `{kind}` | {tests} | {seconds // 60}:{seconds % 60:02} | {'passed' if code == 0 else 'FAILED'} |\n"


def main(folder: Path, kinds: list[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    today = dt.datetime.now(tz=dt.UTC)
    head = f"{today:%d %B %Y}, {os.cpu_count()} cores ({_processor()}):\n\n"
    rows = "".join(row(folder, one) for one in kinds)
    table = f"{head}| kind | tests | min:s | outcome |\n|---|---|---|---|\n{rows}"
    PAGE.write_text(before + BEGIN + table + END + rest.partition(END)[2], encoding="utf-8")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
