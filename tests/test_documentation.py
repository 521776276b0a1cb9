"""Links between the pages lead to existing files, the pages are short, and the picture is valid."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [
    *ROOT.glob("*.md"),
    *DOCS.glob("**/*.md"),
    ROOT / "extensions/vscode/README.md",
    *ROOT.glob("extensions/vscode/media/walkthrough/*.md"),
]
#: What grows with time and is not read from beginning to end.
RECORDS = {ROOT / "CHANGELOG.md", DOCS / "experiments.md"}
MOST_WORDS = 45_000


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def relative_links(page: Path) -> list[str]:
    """The targets of links to files and headings, as they are written."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def linked_files(page: Path) -> set[Path]:
    return {
        (page.parent / target.partition("#")[0]).resolve()
        for target in relative_links(page)
        if not target.startswith("#")
    }


def anchors(page: Path) -> set[str]:
    """The anchors of headings, in the form of code hosts, and those in the text."""
    headings = re.findall(r"^#+ +(.+?) *$", prose(page), flags=re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', prose(page)))


def words(page: Path) -> int:
    """The number of words. Only words with a letter count, so that the bars and figures of tables do not."""
    return sum(any(sign.isalpha() for sign in word) for word in page.read_text(encoding="utf-8").split())


def test_readme_is_found_and_links_to_the_documentation() -> None:
    wanted = {DOCS / "index.md", DOCS / "images/flow.svg", ROOT / "LICENSE"}
    assert wanted <= linked_files(ROOT / "README.md")


def test_links_lead_somewhere() -> None:
    missing = [(str(page), str(target)) for page in PAGES for target in linked_files(page) if not target.exists()]
    assert len(PAGES) > 50 and missing == []


def test_links_to_headings_lead_to_one() -> None:
    missing = []
    for page in PAGES:
        for link in relative_links(page):
            target, _, anchor = link.partition("#")
            if anchor and anchor not in anchors((page.parent / target).resolve() if target else page):
                missing.append((str(page), link))
    assert missing == []


def test_the_index_links_to_every_page() -> None:
    """Pages of benchmarks have an index of their own."""
    indices = [DOCS / "index.md", DOCS / "benchmarks/README.md"]
    linked = set(indices[:1]).union(*(linked_files(index) for index in indices))
    assert [str(page) for page in sorted(DOCS.glob("**/*.md")) if page not in linked] == []


def test_a_newcomer_can_read_all_of_it() -> None:
    assert sum(words(page) for page in PAGES if page not in RECORDS) <= MOST_WORDS


def test_terms_of_the_glossary_are_explained_once() -> None:
    terms = re.findall(r"^\| ([^|]+?) \|", prose(DOCS / "glossary.md"), flags=re.MULTILINE)
    assert len(terms) > 60
    assert sorted({term for term in terms if terms.count(term) > 1} - {"Term", "---"}) == []


def test_picture_has_a_title_and_a_description() -> None:
    tags = {element.tag.rpartition("}")[2] for element in ET.parse(DOCS / "images/flow.svg").iter()}
    assert {"title", "desc"} <= tags
