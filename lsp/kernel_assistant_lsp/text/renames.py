"""Rename the folder of kernels together with the file that it is named after.

The lines that `apply` writes into the file do not change, because they find the folder by the path of the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lsprotocol.types import RenameFile, RenameFileOptions

from kernel_assistant.apply.package import MANIFEST, package_name
from kernel_assistant_lsp.text.documents import is_file, path_of, uri_of


def renamed_packages(files: Iterable[tuple[str, str]]) -> list[RenameFile]:
    """Return the renames of kernel packages for pairs of old and new URI of their files. Reads the disk.

    A package is left where it is if its new path exists already.
    """
    renames = []
    for old, new in files:
        if is_file(old) and is_file(new):
            one, other = _package_of(path_of(old)), _package_of(path_of(new))
            if one != other and (one / MANIFEST).is_file() and not other.exists():
                options = RenameFileOptions(overwrite=False, ignore_if_exists=True)
                renames.append(RenameFile(old_uri=uri_of(one), new_uri=uri_of(other), options=options))
    return renames


def _package_of(path: Path) -> Path:
    return path.parent / package_name(path.stem)
