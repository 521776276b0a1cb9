"""Reads a byte-level BPE vocabulary from `tokenizer.json`, and writes one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_assistant.errors import UsageError

#: GGUF's token types.
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_DIGITS = {"type": "Digits", "individual_digits": True}
#: llama.cpp's name of a pre-tokenizer → the same pre-tokenizer for the tokenizers library.
_SPLITTERS: dict[str, Any] = {
    "gpt-2": _BYTES,
    "starcoder": {"type": "Sequence", "pretokenizers": [_DIGITS, _BYTES]},
}


@dataclass(frozen=True)
class Vocabulary:
    """A byte-level BPE vocabulary: tokens in the order of their ids, each with its GGUF type; merges as "left right";
    ids of special tokens (None if there is none). `splitter` is llama.cpp's name of the pre-tokenizer, `template` the
    chat template."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    splitter: str
    special: Mapping[str, int | None]
    template: str


def read_vocabulary(folder: Path, size: int) -> Vocabulary:
    """Reads the vocabulary of a Hugging Face folder; adds unused tokens up to `size`. Raises UsageError."""
    document = _json(folder / "tokenizer.json")
    model, added = document["model"], {item["id"]: item for item in document.get("added_tokens", ())}
    if model.get("type") != "BPE" or document.get("normalizer") or model.get("byte_fallback"):
        raise _odd("it is not a plain byte-level BPE")
    names = {number: token for token, number in model["vocab"].items()}
    names |= {number: item["content"] for number, item in added.items()}
    if set(names) != set(range(len(names))) or len(names) > size:
        raise _odd(f"its ids are not 0 … {size - 1}")
    types = [_kind(added.get(number)) for number in range(len(names))]
    spare = range(len(names), size)
    return Vocabulary(
        tokens=(*(names[number] for number in range(len(names))), *(f"[PAD{number}]" for number in spare)),
        types=(*types, *(UNUSED for _ in spare)),
        merges=tuple(merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]),
        splitter=_splitter(document.get("pre_tokenizer")),
        special=_special(folder, {token: number for number, token in names.items()}),
        template=_template(folder),
    )


def tokenizer_json(words: Vocabulary) -> dict[str, Any]:
    """Returns the `tokenizer.json` of a vocabulary. Raises UsageError for an unknown pre-tokenizer."""
    if words.splitter not in _SPLITTERS:
        raise UsageError(f"splitting by {words.splitter!r} is not known here", "serve it with --engine llama.cpp")
    numbered = list(enumerate(zip(words.tokens, words.types, strict=True)))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind == CONTROL,
            }
            for number, (token, kind) in numbered
            if kind in (CONTROL, USER_DEFINED)
        ],
        "normalizer": None,
        "pre_tokenizer": _SPLITTERS[words.splitter],
        "post_processor": None,
        "decoder": _BYTES,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            # Includes special tokens, because the library assigns new ids to those that are not listed here.
            "vocab": {token: number for number, (token, kind) in numbered if kind != UNUSED},
            "merges": [merge.split(" ") for merge in words.merges],
        },
    }


def tokenizer_config(words: Vocabulary, context: int) -> dict[str, Any]:
    """Returns the `tokenizer_config.json` of a vocabulary."""
    named = {f"{name}_token": words.tokens[number] for name, number in words.special.items() if number is not None}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        **named,
    }


def _kind(added: Mapping[str, Any] | None) -> int:
    return NORMAL if added is None else CONTROL if added["special"] else USER_DEFINED


def _splitter(document: Any) -> str:
    """Returns llama.cpp's name of a pre-tokenizer. Compares only the kinds of its parts and the fields that affect
    splitting, because other fields differ between versions of the library."""
    parts = document.get("pretokenizers", [document]) if document else []
    kinds = [part["type"] for part in parts]
    plain = (
        parts and kinds[-1] == "ByteLevel" and not parts[-1]["add_prefix_space"] and parts[-1].get("use_regex", True)
    )
    if plain and kinds == ["ByteLevel"]:
        return "gpt-2"
    if plain and kinds == ["Digits", "ByteLevel"] and parts[0]["individual_digits"]:
        return "starcoder"
    raise _odd("it splits text in a way that is not known here")


def _special(folder: Path, ids: Mapping[str, int]) -> dict[str, int | None]:
    config = _json(folder / "tokenizer_config.json")
    special: dict[str, int | None] = {}
    for name in ("bos", "eos", "pad"):
        token = config.get(f"{name}_token")
        special[name] = ids.get(str(token["content"] if isinstance(token, dict) else token))
    if special["eos"] is None:
        raise _odd("it has no eos_token")
    return special


def _template(folder: Path) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    return str(_json(folder / "tokenizer_config.json").get("chat_template") or "")


def _json(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}", "name a folder with tokenizer.json") from error
    return document


def _odd(why: str) -> UsageError:
    return UsageError(f"the tokenizer cannot be written as GGUF here: {why}", "serve the folder as it is, with vLLM")
