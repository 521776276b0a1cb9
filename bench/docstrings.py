"""Docstrings of the product, drawn at random, to be read by somebody who does not know the code.

`python bench/docstrings.py --seed 1 --count 50` prints for each drawn docstring its file and line, the signature and
the text. `--all FOLDER` prints every docstring below a folder instead. A reader counts those that are not clear.
"""

import argparse
import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("kernel_assistant", "lsp", "tui", "training")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Documented:
    """A module, class or function that has a docstring."""

    where: str  # file:line, relative to the root of the repository
    signature: str
    text: str


def signature_of(node: ast.AST) -> str:
    """The first line of a definition, without its body: `def f(x: int) -> str`, `class A(B)`, or `module`."""
    if isinstance(node, FUNCTIONS):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
        return f"def {node.name}({ast.unparse(node.args)}){returns}"
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    return "module"


def docstrings_of(path: Path) -> Iterator[Documented]:
    """Yields the docstrings of one Python file, in the order of the syntax tree."""
    name = path.relative_to(ROOT)
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)):
            continue
        text = ast.get_docstring(node)
        if text is not None:
            line = 1 if isinstance(node, ast.Module) else node.lineno
            yield Documented(f"{name}:{line}", signature_of(node), text)


def docstrings_below(*folders: Path) -> list[Documented]:
    """Every docstring of the Python files below `folders`, files in alphabetical order."""
    return [
        documented for folder in folders for path in sorted(folder.rglob("*.py")) for documented in docstrings_of(path)
    ]


def draw(documented: list[Documented], seed: int, count: int) -> list[Documented]:
    """Returns `count` docstrings without repetition; the same seed and sources give the same ones."""
    return random.Random(seed).sample(documented, count)


def main() -> None:
    """Prints the drawn docstrings, or all of one folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--all", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.all:
        chosen = docstrings_below(options.all.resolve())
    else:
        chosen = draw(docstrings_below(*(ROOT / folder for folder in PRODUCT)), options.seed, options.count)
    for number, documented in enumerate(chosen, 1):
        print(f"{number}. {documented.where}  {documented.signature}\n{documented.text}\n")


if __name__ == "__main__":
    main()
