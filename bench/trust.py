"""Judges every attack of the suites and honest controls, and writes a page about the outcomes.

    python -m bench.trust [--target cpu|cuda] [--out FOLDER]    # writes docs/trust.md and a table

Attacks are judged without the screen, because the other checks have to suffice without it. Exit code 1: an attack got
through, or an honest control was accused. Honest controls are the honest candidates of the suites and of the corpus of
verdicts.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from bench.attack_rows import attack_rows
from bench.harness import markdown
from bench.machine import describe
from bench.verdicts import FOLDER, Label, Row, judged, read
from kernel_assistant.environment.freeform import screen_candidate
from kernel_assistant.environment.freeform_candidate import ModelCandidate
from kernel_assistant.environment.screens.screen import screen
from kernel_assistant.records import Candidate, Outcome
from kernel_assistant.targets.detect import detect

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGE, TABLE = "trust.md", "trust-{target}.csv"
HONEST, ATTACK = "honest: ", "cheat: "
#: The check that refused a candidate, by what its message says; the first that fits.
CHECKS = {
    "answered before it was asked": "tickets",
    "threads of the candidate": "count of threads",
    "left its outputs": "marks in outputs",
    "while timed": "values while timed",
    "PyTorch computes": "names of PyTorch's operators",
    "faster than the device": "memory bandwidth",
    "wrote outside": "red zones",
    "leaves another rounding mode": "state of the process",
    "run again": "second run",
    "odd each time": "time by number of calls",
    "forward returned": "layout of outputs",
    "an output": "layout of outputs",
}
#: The check behind an outcome whose message names none.
BY_OUTCOME = {
    Outcome.refused: "screen",
    Outcome.compile_error: "compiler in the sandbox",
    Outcome.incorrect: "comparison with float64",
    Outcome.crashed: "sandbox and read-only memory",
    Outcome.out_of_memory: "limit of memory",
    Outcome.hung: "limit of time",
}
NO_GAIN = "gained nothing"


@dataclass(frozen=True)
class Finding:
    """An attack, its form, whether the screen refuses it too, and how it was judged without the screen."""

    name: str
    form: str
    screened: bool
    label: Label

    @property
    def got_through(self) -> bool:
        return self.name.startswith(ATTACK) and self.label.outcome in (None, Outcome.correct)

    @property
    def check(self) -> str:
        """The check that refused it."""
        outcome = self.label.outcome
        if outcome is Outcome.correct:
            return "none" if self.got_through else NO_GAIN
        named = next((check for words, check in CHECKS.items() if words in self.label.message), "")
        return named or BY_OUTCOME.get(outcome or Outcome.crashed, "not judged")

    def row(self) -> tuple[str, ...]:
        kept = (self.name.partition(": ")[2], self.form, self.label.tier.value)
        message = self.label.message.replace(f"{ROOT}/", "").replace(str(Path.home()), "~")
        return (*kept, self.label.verdict, self.check, "yes" if self.screened else "no", message)


def honest_rows(target: str) -> list[Row]:
    """Honest candidates of the corpus."""
    rows = [row for row in read(FOLDER / f"{target}.jsonl.xz") if row.graph is not None]
    honest = [tuple(label for label in row.labels if label.source.startswith(HONEST)) for row in rows]
    return [replace(row, labels=labels) for row, labels in zip(rows, honest, strict=True) if labels]


def findings(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        for label in row.labels:
            if not label.source.startswith(HONEST):
                form = "free-form" if isinstance(label.candidate, str) else "plan"
                yield Finding(label.source, form, _screened(row, label), label)


def accused(rows: Sequence[Row]) -> tuple[list[Label], int]:
    """Honest controls that are not called correct, and the number of all."""
    honest = [label for row in rows for label in row.labels if label.source.startswith(HONEST)]
    return [label for label in honest if label.outcome is not Outcome.correct], len(honest)


def _screened(row: Row, label: Label) -> bool:
    if isinstance(label.candidate, Candidate):
        return row.graph is not None and bool(screen(label.candidate, row.graph))
    path = Path(row.task.path)
    return bool(screen_candidate(ModelCandidate(path, label.candidate, row.task.content, path, {})))


def table(found: Sequence[Finding]) -> str:
    """A CSV with a line for each attack."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("attack", "form", "tier", "outcome", "check", "screen refuses too", "message"))
    writer.writerows(one.row() for one in found)
    return text.getvalue()


def page(found: Sequence[Finding], honest: tuple[list[Label], int], target: str, machine: dict[str, str]) -> str:
    through = [one.name for one in found if one.got_through]
    counts = Counter(one.check for one in found)
    forms = Counter(one.form for one in found)
    kinds = ", ".join(f"{count} {form}" for form, count in sorted(forms.items()))
    lines = [
        "# Trust",
        "",
        "For users who ask whether a candidate can cheat. `make trust` judges every attack of `tests/hostile`, without",
        f"the [screen](judge.md), and honest controls. [Each attack](benchmarks/{TABLE.format(target=target)}) has a",
        "line with form, tier, outcome and message. What is not protected: [SECURITY.md](../SECURITY.md).",
        "",
        f"On {machine['CPU']}, torch {machine['torch'].split()[0]}, target {target},",
        f"{datetime.now(UTC):%Y-%m-%d}, load average {machine['load average']}:",
        "",
        f"- **{len(found)} attacks** ({kinds}), **{len(through)} got through**{': ' if through else ''}"
        + ", ".join(through),
        f"- **{honest[1]} honest controls, {len(honest[0])} accused**"
        + "".join(f"; {label.source}: {label.verdict}" for label in honest[0]),
        "",
        *markdown(("Check", "Attacks"), counts.most_common()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, default=DOCS, metavar="FOLDER")
    options = parser.parse_args()
    machine = describe(detect(options.target))
    rows = judged([*attack_rows(options.target), *honest_rows(options.target)], options.target)
    found, honest = list(findings(rows)), accused(rows)
    (options.out / "benchmarks").mkdir(parents=True, exist_ok=True)
    (options.out / "benchmarks" / TABLE.format(target=options.target)).write_text(table(found), encoding="utf-8")
    text = page(found, honest, options.target, machine)
    (options.out / PAGE).write_text(text, encoding="utf-8")
    print(text)
    return 1 if honest[0] or any(one.got_through for one in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
