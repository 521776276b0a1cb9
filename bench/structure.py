"""Counts that say how tangled the code is: circles of imports, crowded folders, class names that are used twice.

python -m bench.structure
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
#: Package → its folder below the checkout.
PACKAGES = {
    "kernel_assistant": "kernel_assistant",
    "kernel_assistant_training": "training/kernel_assistant_training",
    "kernel_assistant_lsp": "lsp/kernel_assistant_lsp",
    "kernel_assistant_tui": "tui/kernel_assistant_tui",
}
#: A folder with more files than this, `__init__.py` and `__main__.py` aside, is crowded.
MOST_FILES = 20


@dataclass(frozen=True)
class Structure:
    """`circles` are sorted names of modules that import each other, `crowded` folders with their number of files,
    `duplicates` class names that a package has twice, `lines` those of Python by package."""

    circles: tuple[tuple[str, ...], ...]
    crowded: Mapping[str, int]
    duplicates: Mapping[str, tuple[str, ...]]
    lines: Mapping[str, int]


def structure(root: Path = ROOT) -> Structure:
    """The counts for all packages below the checkout `root`; circles are those of the installed packages."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    return Structure(circles=circles(graph), crowded=_crowded(root), duplicates=_duplicates(root), lines=_lines(root))


def circles(graph: grimp.ImportGraph) -> tuple[tuple[str, ...], ...]:
    """Sorted groups of modules that reach each other by imports; imports inside functions count."""
    groups = (
        {module, *(graph.find_upstream_modules(module) & graph.find_downstream_modules(module))}
        for module in graph.modules
    )
    return tuple(sorted({tuple(sorted(group)) for group in groups if len(group) > 1}))


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yields (package, file) for each Python file."""
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            yield package, path


def _crowded(root: Path) -> dict[str, int]:
    loose = (path for _, path in _files(root) if path.name not in ("__init__.py", "__main__.py"))
    counts = Counter(str(path.parent.relative_to(root)) for path in loose)
    return {folder: count for folder, count in sorted(counts.items()) if count > MOST_FILES}


def _duplicates(root: Path) -> dict[str, tuple[str, ...]]:
    """Class names that several files of a package define at top level."""
    paths: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for package, path in _files(root):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                paths[package, node.name].append(str(path.relative_to(root)))
    return {name: tuple(same) for (_, name), same in sorted(paths.items()) if len(same) > 1}


def _lines(root: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for package, path in _files(root):
        counts[package] += len(path.read_text(encoding="utf-8").splitlines())
    counts["tests"] = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (root / "tests").rglob("*.py"))
    return dict(counts)


def main() -> None:
    """Prints the counts."""
    counted = structure()
    print(f"{len(counted.circles)} circles of imports")
    for circle in counted.circles:
        print("  " + ", ".join(circle))
    print(f"{len(counted.crowded)} folders with more than {MOST_FILES} files")
    for folder, count in counted.crowded.items():
        print(f"  {count} {folder}")
    print(f"{len(counted.duplicates)} class names used twice in a package")
    for name, paths in counted.duplicates.items():
        print(f"  {name}: {', '.join(paths)}")
    print(f"lines of Python: {', '.join(f'{name} {count:,}' for name, count in counted.lines.items())}")


if __name__ == "__main__":
    sys.exit(main())
