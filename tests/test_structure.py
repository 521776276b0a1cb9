"""The structure of the code: no import cycles, each class name is used once, and one loop asks policies."""

from __future__ import annotations

import re
from pathlib import Path

import grimp
import pytest

from bench.structure import circles, structure

GLOSSARY = Path(__file__).parent.parent / "docs" / "glossary.md"


@pytest.fixture(scope="module")
def counted():
    return structure()


def test_a_circle_is_found():
    graph = grimp.ImportGraph()
    for importer, imported in ("ab", "bc", "cb", "da", "dd"):
        graph.add_import(importer=importer, imported=imported)
    assert list(circles(graph)) == [("b", "c")]


def test_modules_do_not_import_each_other(counted):
    assert not counted.circles


def test_no_folder_is_crowded(counted):
    assert not counted.crowded


def test_a_package_has_a_class_name_once(counted):
    assert counted.duplicates == {}


def test_no_class_has_a_name_that_the_glossary_replaces():
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    replaced = {word.strip() for row in rows for word in row.split(",") if re.fullmatch(r"\s*[a-z]+\s*", word)}
    assert {"wish", "seat", "fleet"} <= replaced
    classes = re.compile(rf"^class ({'|'.join(word.capitalize() for word in sorted(replaced))})\b", re.MULTILINE)
    root = GLOSSARY.parent.parent
    named = {
        path.name: classes.findall(path.read_text(encoding="utf-8"))
        for package in ("kernel_assistant", "training", "tui", "lsp")
        for path in (root / package).rglob("*.py")
    }
    assert {name: found for name, found in named.items() if found} == {}


def test_one_loop_asks_policies():
    """Every other caller passes its parts to `agent/turns.py`. A view is what a policy is asked with."""
    root = GLOSSARY.parent.parent
    makers = [
        path.name
        for folder in ("kernel_assistant", "training", "bench")
        for path in (root / folder).rglob("*.py")
        if "EpisodeView(" in path.read_text(encoding="utf-8")
    ]
    assert makers == ["turns.py"]
