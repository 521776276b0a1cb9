"""Makes tasks from the inputs that a scan recorded: for a class whose file declares no inputs, or if the user asks for
recorded inputs."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernel_assistant.config import Settings
from kernel_assistant.errors import UsageError
from kernel_assistant.records import InputSource, KernelTask, Numerics, Workload
from kernel_assistant.records.scan import Sample, Scan, ScannedClass
from kernel_assistant.store.scans import ScanStore


@dataclass(frozen=True)
class RecordedTask:
    """A task, and the Python interpreter that ran the scanned program."""

    task: KernelTask
    python: str


@dataclass(frozen=True)
class ClassOfScan:
    """A class of a scan. `number` selects one of its configurations; "" means that the user selected none."""

    scan: Scan
    row: ScannedClass
    number: str = ""


def class_of_scan(spec: str, settings: Settings) -> ClassOfScan:
    """Returns the class for `ID:CLASS` or `last:CLASS`; ID is the scan's number. If two classes share the name, CLASS
    must include the module. `ID:CLASS#2` selects the configuration (kind of module and inputs) that took the second
    most time. Raises UsageError if there is no such scan or class."""
    number, colon, name = spec.partition(":")
    scan = ScanStore(settings.state_dir).scan(number or "last")
    if not colon or not name:
        names = ", ".join(row.name for row in scan.classes[:5]) or "none"
        raise UsageError(f"{spec!r} names no class", f"say --scan {scan.id}:CLASS, with one of: {names}")
    name, _, configuration_number = name.partition("#")
    return ClassOfScan(scan, _row(scan, name), configuration_number)


def class_of_task(task: KernelTask, state_dir: Path) -> ClassOfScan | None:
    """Returns the scanned class whose recorded inputs a task uses; None if its inputs were not recorded by a scan, or
    if the scan was deleted."""
    folder = Path(task.recording)
    scans = state_dir / "scans"
    if not task.recording or not folder.is_relative_to(scans):
        return None
    number = folder.relative_to(scans).parts[0]
    try:
        scan = ScanStore(state_dir).scan(number)
    except UsageError:
        return None
    kept = (row for row in scan.classes if any(one.folder == task.recording for one in row.configurations))
    row = next(kept, None)
    return None if row is None else ClassOfScan(scan, row)


def from_scan(spec: str, settings: Settings, target: str) -> RecordedTask:
    """Returns the task for one configuration of a scanned class: `ID:CLASS#2` selects the second one, `ID:CLASS` the
    one that took most time.

    Raises UsageError as `class_of_scan` does, and if no inputs of the class were kept.
    """
    scanned_class = class_of_scan(spec, settings)
    return _recorded(scanned_class.scan, _configured(scanned_class.row, scanned_class.number), settings, target)


def from_file(path: Path, class_name: str, settings: Settings, target: str) -> RecordedTask | None:
    """Returns the task for a class of the file `path`, from the newest scan that kept inputs of it; None if there is no
    such scan. If `class_name` is "", takes the class of the file in which kernels could save most time."""
    scan = ScanStore(settings.state_dir).with_inputs(path, class_name)
    if scan is None:
        return None
    rows = [row for row in scan.classes if row.folder and row.path == str(path) and class_name in ("", row.qualname)]
    return _recorded(scan, rows[0], settings, target) if rows else None


def _row(scan: Scan, name: str) -> ScannedClass:
    rows = [row for row in scan.classes if name in (row.name, row.key)]
    if not rows:
        names = ", ".join(row.name for row in scan.classes[:8]) or "none"
        raise UsageError(f"scan {scan.id} saw no class {name}", f"classes there: {names}")
    if len(rows) > 1:
        raise UsageError(
            f"scan {scan.id} saw {len(rows)} classes {name}",
            f"name one: {', '.join(f'--scan {scan.id}:{row.key}' for row in rows)}",
        )
    return rows[0]


def _configured(row: ScannedClass, number: str) -> ScannedClass:
    """Returns `row` with folder and samples of its configuration `number`, counted from 1; "" means 1. Raises
    UsageError if there is no such configuration."""
    if number in ("", "1"):
        return row
    if not number.isdigit() or not 2 <= int(number) <= len(row.more) + 1:
        raise UsageError(
            f"{row.name}#{number} is none of its configurations", f"{row.name} has {len(row.more) + 1} that were kept"
        )
    chosen = row.more[int(number) - 2]
    return msgspec.structs.replace(row, folder=chosen.folder, training=chosen.training, samples=chosen.samples)


def _recorded(scan: Scan, row: ScannedClass, settings: Settings, target: str) -> RecordedTask:
    from kernel_assistant.source.build import import_location, read_text
    from kernel_assistant.source.find import parse

    if not row.folder:
        raise UsageError(
            f"{row.name} of scan {scan.id} cannot be optimized: {row.problem}", "declare its inputs instead"
        )
    if not Path(row.folder).is_dir():
        raise UsageError(f"what scan {scan.id} kept of {row.name} is gone", "scan the program again")
    path = Path(row.path)
    content = read_text(path)
    if row.module == "__main__" and not _has_main_guard(parse(content, str(path))):
        raise UsageError(
            f"{path} runs its program whenever it is imported, so {row.name} cannot be had alone",
            'put the program behind `if __name__ == "__main__":`, or the class into a module of its own',
        )
    # A class of the script itself is imported by the script's name, because in the worker `__main__` is the worker.
    name, folder = import_location(path) if row.module == "__main__" else (row.module, "")
    task = KernelTask(
        path=str(path),
        content=content,
        class_name=row.name,
        source=InputSource.recorded,
        workloads=tuple(
            Workload(
                name="recorded" if index == 0 else f"recorded{index + 1}",
                args=args,
                kwargs=kwargs,
            )
            for index, (args, kwargs) in enumerate(map(recorded_calls, row.samples))
        ),
        search_path=tuple(entry for entry in dict.fromkeys((*scan.search_path, folder)) if entry),
        module_name=name,
        target=target,
        numerics=Numerics(settings.numerics),
        training=row.training,
        recording=row.folder,
        installed=row.installed,
    )
    return RecordedTask(task, scan.python)


def recorded_calls(sample: Sample) -> tuple[str, str]:
    """Returns the Python expressions in a task for the kept inputs of `sample`: one for the positional arguments, one
    for the keyword arguments."""
    return f"recorded({sample.number})[0]", f"recorded({sample.number})[1]"


def _has_main_guard(tree: ast.Module) -> bool:
    """Whether the file has an `if __name__ == "__main__"` block."""
    tests = [node.test for node in tree.body if isinstance(node, ast.If)]
    return any(isinstance(part, ast.Name) and part.id == "__name__" for test in tests for part in ast.walk(test))
