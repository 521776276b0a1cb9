"""Docstrings of the product, drawn at random, to be read by somebody who does not know the code.

`python bench/docstrings.py --seed 1 --count 50` prints for each drawn docstring its file and line, the signature and
the text. A reader counts those that are not clear.
"""

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("kernel_assistant", "lsp", "tui", "training")


def signature_of(node: ast.AST) -> str:
    """The first line of a definition, without its body: `def f(x: int) -> str`, `class A(B)`, or `module`."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
            return f"def {node.name}({ast.unparse(node.args)}){returns}"
        case ast.ClassDef():
            bases = ", ".join(ast.unparse(base) for base in node.bases)
            return f"class {node.name}({bases})" if bases else f"class {node.name}"
    return "module"


def docstrings_below(*folders: Path) -> Iterator[str]:
    """Every docstring of the Python files below `folders` with its place and signature, files in alphabetical order."""
    for path in (path for folder in folders for path in sorted(folder.rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text is not None:
                    yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}  {signature_of(node)}\n{text}\n"


def main() -> None:
    """Prints the drawn docstrings."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50)
    options = parser.parse_args()
    every = list(docstrings_below(*(ROOT / folder for folder in PRODUCT)))
    chosen = random.Random(options.seed).sample(every, options.count)
    for number, documented in enumerate(chosen, 1):
        print(f"{number}. {documented}")


if __name__ == "__main__":
    main()
