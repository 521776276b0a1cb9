"""Builds the extensions of a candidate in the sandbox; the workspace is the current folder.

`request.json` holds `text` (the candidate's file) and `sources` (paths of a CUDA-Agent workdir's files, or nothing).
Exits with 1 and the compiler's messages on stderr if a build fails.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import torch.utils.cpp_extension as cpp_extension

from .candidate import import_candidate
from .extensions import WORKDIR_FLAGS, Builder


def main() -> int:
    folder = os.getcwd()
    with open("request.json", encoding="utf-8") as file:
        request = json.load(file)
    builder = Builder(folder)
    builder.install()
    try:
        if request["sources"]:
            module: Any = cpp_extension.load("cuda_extension", request["sources"], **WORKDIR_FLAGS)
            sys.modules["cuda_extension"] = module
        import_candidate(folder, request["text"])
    except Exception as error:  # noqa: BLE001 - whatever the candidate's import raises is its compile error
        sys.stderr.write(f"{''.join(traceback.format_tb(error.__traceback__)[-1:])}{type(error).__name__}: {error}\n")
        return 1
    builder.write()
    return 0
