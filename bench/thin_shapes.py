"""Scans, reductions and sorts of tensors with one tiny and one huge dimension: generated kernels beside PyTorch.

    python bench/thin_shapes.py --target cuda --out FOLDER [--seconds 360] [--only cumsum]

Sixty rows, operator × sizes × dimension. Each has the times of eager PyTorch, of `torch.compile`, of the generator's
first schedule, of the best and of the slowest that a search would try. The rows run in a process of their own, which is
started anew behind a row in which it dies or is silent for long; such a row, and one that nobody can write, says so.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

HUGE, LONG = 1 << 20, 1 << 18
OPERATORS = ("cumsum", "cumprod", "cummax", "logcumsumexp", "sum", "softmax", "std", "argmax", "sort", "topk")
#: Sizes and the dimension along which the operator works.
PLACES = (
    ((4, HUGE), 0),
    ((4, HUGE), 1),
    ((HUGE, 4), 0),
    ((HUGE, 4), 1),
    ((LONG, 8), 0),
    ((1 << 15, 16, 8), 1),
)
#: Seconds without an answer after which the process of the rows is killed.
SILENT = {"cuda": 90.0, "cpu": 240.0}
#: A row whose slowest schedule takes more than this times torch.compile's time is a defect.
SLOW = 10.0


@dataclass(frozen=True)
class Row:
    operator: str
    sizes: tuple[int, ...]
    dim: int

    @property
    def name(self) -> str:
        return f"{self.operator} {' x '.join(map(str, self.sizes))} along {self.dim}"


ROWS = [Row(operator, sizes, dim) for operator in OPERATORS for sizes, dim in PLACES]


def main() -> int:
    arguments = _arguments()
    if arguments.child:
        from bench.thin_rows import measure_rows

        measure_rows(ROWS, arguments.target, arguments.most)
        return 0
    began = time.monotonic()
    command = " ".join((Path(__file__).name, *sys.argv[1:]))
    document: dict[str, Any] = {"command": command, "target": arguments.target, **_machine(arguments.target)}
    document["rows"] = rows = _supervised(arguments, began + arguments.seconds)
    document["seconds"] = round(time.monotonic() - began, 1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"thin-shapes-{arguments.target}.json").write_text(json.dumps(document, indent=1) + "\n")
    _report(rows)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for thin-shapes-TARGET.json")
    parser.add_argument("--seconds", type=float, default=360.0, help="no row begins after so many")
    parser.add_argument("--most", type=int, default=12, help="schedules of a row")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _machine(target: str) -> dict[str, Any]:
    from bench.machine import describe
    from kernel_assistant.targets.detect import detect

    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {"machine": describe(detect(target)), "commit": commit.stdout.strip() or "unknown"}


def _supervised(arguments: argparse.Namespace, until: float) -> list[dict[str, Any]]:
    """The results of all rows, from as many processes as it takes."""
    found: list[dict[str, Any]] = []
    chosen = [number for number, row in enumerate(ROWS) if arguments.only in row.name]
    while chosen and time.monotonic() < until:
        child = _Child(arguments)
        problem = ""
        while chosen and not problem and time.monotonic() < until:
            row = ROWS[chosen[0]]
            problem = child.ask(chosen[0]) or child.wait(SILENT[arguments.target])
            result = {"problem": problem} if problem else json.loads(child.line)
            found.append({"row": row.name, **result})
            print(_line(found[-1]), flush=True)
            chosen.pop(0)
        child.end()
    found += [{"row": ROWS[number].name, "problem": "left out: no time was left"} for number in chosen]
    return found


class _Child:
    """The process that measures rows: numbers of rows go in, lines of JSON come out."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        argv = [sys.executable, __file__, "--target", arguments.target, "--most", str(arguments.most), "--child"]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.line, self._rest = "", b""

    def ask(self, number: int) -> str:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{number}\n".encode())
            self.process.stdin.flush()
        except OSError:
            return self._how_it_ended()
        return ""

    def wait(self, seconds: float) -> str:
        """Why there is no line, or "" with the next one in `line`."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(until - time.monotonic(), 0.0))
            if not ready:
                return f"no answer within {seconds:.0f} s"
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                return self._how_it_ended()
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        self.line = line.decode()
        return ""

    def _how_it_ended(self) -> str:
        return f"the process ended with status {self.process.wait()}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def _line(row: dict[str, Any]) -> str:
    if "problem" in row:
        return f"{row['row']:<40} {row['problem']}"
    if "compile_ms" not in row:
        return f"{row['row']:<40} {row['refused']}"
    times = " ".join(f"{row[f'{name}_ms']:>9.4f}" for name in ("eager", "compile", "first", "best", "slowest"))
    return f"{row['row']:<40} {times} {row['of_compile']:>7.2f} {row['slowest_of_compile']:>7.2f}  {row['best']}"


def _report(rows: list[dict[str, Any]]) -> None:
    timed = [row for row in rows if "of_compile" in row]
    slow = [row for row in timed if row["slowest_of_compile"] < 1 / SLOW]
    behind = [row for row in timed if row["of_better"] < 0.9]
    wrong = [row for row in rows if row.get("wrong")]
    print(f"\n{len(rows)} rows: {len(timed)} timed, {sum('refused' in row for row in rows)} refused by name, ", end="")
    print(f"{sum('problem' in row for row in rows)} without a result, {len(wrong)} with a wrong schedule")
    for title, some in ((f"a schedule {SLOW:.0f} times slower", slow), ("best below 0.9", behind), ("wrong", wrong)):
        for row in some:
            print(f"{title}: {row['row']}: {row.get('slowest')} {row.get('wrong', '')}")


if __name__ == "__main__":
    sys.exit(main())
