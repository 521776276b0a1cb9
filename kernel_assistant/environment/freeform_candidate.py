"""Loads free-form candidates (KernelBench files, CUDA-Agent folders) as records. Does not import torch."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.environment import freeform_text as texts
from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import content_hash

SOURCE_SUFFIXES = (".cu", ".cuh", ".cpp", ".h")
WORKDIR_FIXED = ("binding.cpp", "binding_registry.h")


@dataclass(frozen=True)
class ModelCandidate:
    """A KernelBench-style file with a class ModelNew, or a CUDA-Agent workdir (then `sources` has its native files).

    `text` is the candidate's own Python code; `reference` is the text of the reference in the same file, or "".
    `sources` maps paths inside the workdir to their text.
    """

    path: Path
    text: str
    reference: str
    reference_path: Path
    sources: dict[str, str]

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def is_workdir(self) -> bool:
        return bool(self.sources)

    @property
    def uses_triton(self) -> bool:
        return any("triton" in module for module in _imports(self.text))

    @property
    def needs_gpu(self) -> bool:
        """Whether the candidate cannot run on a CPU: it has CUDA sources, uses Triton or is a workdir."""
        return self.is_workdir or self.uses_triton or "cuda_sources" in self.text or "__global__" in self.text

    def hash(self) -> str:
        return content_hash([self.text, self.sources])


def load_candidate(path: Path, reference: str | None = None) -> ModelCandidate:
    """Loads the candidate at `path`: a file with ModelNew, or a CUDA-Agent workdir.

    With `reference` (FILE[:CLASS]), the candidate needs no reference of its own. Raises UsageError if `path` is
    neither, or if there is no reference.
    """
    if path.is_dir():
        if (path / "model_new.py").is_file():
            return _load_workdir(path, reference)
        raise UsageError(
            f"{path} holds neither plan.json nor model_new.py", "name a workspace, a workdir or a .py file"
        )
    text = _read(path)
    tree = texts.parse(text, path.name)
    if not texts.has_class(tree, texts.CANDIDATE):
        raise UsageError(f"{path} has no class {texts.CANDIDATE}", f"name the candidate's class {texts.CANDIDATE}")
    beside = texts.reference_part(text, tree) if texts.has_class(tree, texts.REFERENCE) else ""
    _require_reference(path, beside, reference)
    return ModelCandidate(path, texts.candidate_part(text, tree), beside, path, {})


def _load_workdir(folder: Path, reference: str | None) -> ModelCandidate:
    text = _read(folder / "model_new.py")
    tree = texts.parse(text, "model_new.py")
    if not texts.has_class(tree, texts.CANDIDATE):
        raise UsageError(f"{folder / 'model_new.py'} has no class {texts.CANDIDATE}", "define it")
    kernels = sorted((folder / "kernels").glob("*")) if (folder / "kernels").is_dir() else []
    files = [path for path in [*kernels, *(folder / name for name in WORKDIR_FIXED)] if path.is_file()]
    sources = {str(path.relative_to(folder)): _read(path) for path in files if path.suffix in SOURCE_SUFFIXES}
    if not any(name.endswith(".cu") for name in sources):
        raise UsageError(f"{folder} has no kernels/*.cu", "a CUDA-Agent workdir has kernels/, binding.cpp and model.py")
    missing = [name for name in WORKDIR_FIXED if name not in sources]
    if missing:
        raise UsageError(f"{folder} has no {missing[0]}", "a CUDA-Agent workdir has kernels/, binding.cpp and model.py")
    beside = ""
    model = folder / "model.py"
    if model.is_file():
        whole = _read(model)
        beside = texts.reference_part(whole, texts.parse(whole, "model.py"))
    _require_reference(folder, beside, reference)
    return ModelCandidate(folder, texts.candidate_part(text, tree), beside, model, sources)


def _require_reference(path: Path, beside: str, reference: str | None) -> None:
    if not beside and reference is None:
        raise UsageError(f"{path} has no reference (class {texts.REFERENCE}) beside it", "add --reference FILE[:CLASS]")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})", "save it as UTF-8") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "check the path") from error


def _imports(text: str) -> list[str]:
    modules: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append(node.module or "")
    return modules
