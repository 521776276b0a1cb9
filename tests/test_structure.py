"""The structure of the code: no import cycles, each class name is used once, and one loop asks policies."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
#: Package → its folder below the checkout.
PACKAGES = {
    "kernel_assistant": ROOT / "kernel_assistant",
    "kernel_assistant_training": ROOT / "training" / "kernel_assistant_training",
    "kernel_assistant_lsp": ROOT / "lsp" / "kernel_assistant_lsp",
    "kernel_assistant_tui": ROOT / "tui" / "kernel_assistant_tui",
}
#: A folder with more files than this, `__init__.py` and `__main__.py` aside, is crowded.
MOST_FILES = 20
GLOSSARY = ROOT / "docs" / "glossary.md"


def circles(graph):
    """Sorted groups of modules that reach each other by imports; imports inside functions count."""
    groups = (
        {module, *(graph.find_upstream_modules(module) & graph.find_downstream_modules(module))}
        for module in graph.modules
    )
    return sorted({tuple(sorted(group)) for group in groups if len(group) > 1})


def test_a_circle_is_found():
    graph = grimp.ImportGraph()
    for importer, imported in ("ab", "bc", "cb", "da", "dd"):
        graph.add_import(importer=importer, imported=imported)
    assert circles(graph) == [("b", "c")]


def test_modules_do_not_import_each_other():
    assert circles(grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)) == []


def test_no_folder_is_crowded():
    paths = (path for folder in PACKAGES.values() for path in folder.rglob("*.py"))
    counts = Counter(path.parent for path in paths if path.name not in ("__init__.py", "__main__.py"))
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}


def test_a_package_has_a_class_name_once():
    paths = defaultdict(list)
    for package, folder in PACKAGES.items():
        for path in folder.rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    paths[package, node.name].append(path)
    assert {name: same for name, same in paths.items() if len(same) > 1} == {}


def test_no_class_has_a_name_that_the_glossary_replaces():
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    replaced = {word.strip() for row in rows for word in row.split(",") if re.fullmatch(r"\s*[a-z]+\s*", word)}
    assert {"wish", "seat", "fleet"} <= replaced
    classes = re.compile(rf"^class ({'|'.join(word.capitalize() for word in sorted(replaced))})\b", re.MULTILINE)
    named = {
        path.name: classes.findall(path.read_text(encoding="utf-8"))
        for package in ("kernel_assistant", "training", "tui", "lsp")
        for path in (ROOT / package).rglob("*.py")
    }
    assert {name: found for name, found in named.items() if found} == {}


def test_one_loop_asks_policies():
    """Every other caller passes its parts to `agent/turns.py`. A view is what a policy is asked with."""
    makers = [
        path.name
        for folder in ("kernel_assistant", "training", "bench")
        for path in (ROOT / folder).rglob("*.py")
        if "EpisodeView(" in path.read_text(encoding="utf-8")
    ]
    assert makers == ["turns.py"]
