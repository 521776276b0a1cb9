"""`python -m kernel_assistant.serving.convert to-gguf FOLDER FILE | to-folder FILE FOLDER | info FILE`.

Says nothing but what `info` prints (JSON). A failure is one line of cause and one of next step on stderr.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kernel_assistant.errors import EXIT_OK, EXIT_USAGE, KernelAssistantError
from kernel_assistant.serving.convert.shape import summary


def main(words: list[str]) -> int:
    """Runs the command. Returns the exit code."""
    try:
        _run(words[0], *map(Path, words[1:]))
    except KernelAssistantError as error:
        print(error.cause, error.next_step, sep="\n", file=sys.stderr)  # noqa: T201 - its caller reads this
        return error.exit_code
    except (IndexError, TypeError):
        print(__doc__, file=sys.stderr)  # noqa: T201
        return EXIT_USAGE
    return EXIT_OK


def _run(what: str, source: Path, target: Path | None = None) -> None:
    if what == "to-gguf" and target is not None:
        from kernel_assistant.serving.convert.to_gguf import to_gguf

        to_gguf(source, target)
    elif what == "to-folder" and target is not None:
        from kernel_assistant.serving.convert.to_folder import to_folder

        to_folder(source, target)
    elif what == "info":
        print(json.dumps(_info(source)))  # noqa: T201
    else:
        raise TypeError(what)


def _info(file: Path) -> dict[str, Any]:
    from kernel_assistant.serving.convert.to_folder import metadata, open_gguf, shape_of

    reader = open_gguf(file)
    fields = metadata(reader)
    return {
        "name": fields.get("general.name", ""),
        "architecture": fields.get("general.architecture", ""),
        "parameters": sum(int(tensor.n_elements) for tensor in reader.tensors),
        "weights": sorted({tensor.tensor_type.name for tensor in reader.tensors}),
        "chat_template": bool(fields.get("tokenizer.chat_template")),
        **(summary(shape_of(reader)) if fields.get("general.architecture") == "llama" else {}),
    }


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
