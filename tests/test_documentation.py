"""Links between the pages lead somewhere, and the picture is well-formed."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "extensions/vscode/README.md"]


def relative_links(page: Path) -> list[str]:
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    return [target.partition("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]


def test_readme_is_found_and_links_to_the_documentation() -> None:
    assert {"docs/index.md", "docs/images/flow.svg", "LICENSE"} <= set(relative_links(ROOT / "README.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [target for target in relative_links(page) if not (page.parent / target).exists()]
    assert missing == []


def test_picture_has_a_title_and_a_description() -> None:
    tags = {element.tag.rpartition("}")[2] for element in ET.parse(ROOT / "docs/images/flow.svg").iter()}
    assert {"title", "desc"} <= tags
