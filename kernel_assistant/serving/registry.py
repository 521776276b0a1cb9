"""The registered models: `models.toml` beside the user's settings, and how the name of a model is resolved.

Keys are never stored: an endpoint's entry names the environment variable that has the key.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import msgspec

from kernel_assistant.config import Settings, did_you_mean, user_file
from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import Record
from kernel_assistant.records.spending import Price
from kernel_assistant.serving.card import card_of
from kernel_assistant.serving.errors import ModelNotFoundError, NoModelError

#: The shipped model, with its card beside it.
SHIPPED = Path(__file__).parent / "models" / "kernel-assistant.gguf"
SHIPPED_NAME = "shipped"


class ModelKind(str, Enum):
    """The kind of location from which a model is used."""

    gguf = "gguf"  # a file for llama.cpp
    folder = "folder"  # in Hugging Face format, for vLLM
    hub = "hub"  # owner/name, downloaded by vLLM
    endpoint = "endpoint"  # an OpenAI-compatible URL


class ModelEntry(Record, frozen=True, kw_only=True):
    """A registered model. `where`: path, hub name or URL. For an endpoint, `remote_name` is the model to request and
    `key_variable` the environment variable with the key. `compact`: use the compact prompt profile. `turns`: the number
    of replies that the model can give in one conversation, 0 for any number. `price_in` and `price_out`: money for a
    million tokens, None where it is not known."""

    name: str
    kind: ModelKind
    where: str
    remote_name: str = ""
    key_variable: str = ""
    compact: bool = False
    turns: int = 0
    price_in: float | None = None
    price_out: float | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            raise ValueError("a name has letters, digits, dots, hyphens and underscores")
        if self.kind is not ModelKind.endpoint and (self.remote_name or self.key_variable):
            raise ValueError("only an endpoint has a model name and a key of its own")
        prices = [price for price in (self.price_in, self.price_out) if price is not None]
        if len(prices) == 1 or not all(0 <= price < float("inf") for price in prices):
            raise ValueError("a price is two numbers that are not negative, of tokens in and of tokens out")

    @property
    def price(self) -> Price | None:
        return Price.known(self.price_in, self.price_out)

    @property
    def is_there(self) -> bool:
        """Whether the model's file or folder exists; True for a hub name or a URL."""
        return self.kind in (ModelKind.hub, ModelKind.endpoint) or Path(self.where).exists()


def registry_file() -> Path:
    """Returns the path of `models.toml`, which need not exist."""
    return user_file().with_name("models.toml")


def entries() -> dict[str, ModelEntry]:
    """Returns the registered models by name, the shipped one first. Raises UsageError for an invalid file."""
    models = {}
    if SHIPPED.is_file():
        card = card_of(SHIPPED)
        models[SHIPPED_NAME] = ModelEntry(
            name=SHIPPED_NAME, kind=ModelKind.gguf, where=str(SHIPPED), compact=True, turns=card.turns if card else 0
        )
    path = registry_file()
    if not path.is_file():
        return models
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        for name, table in document.items():
            models[name] = msgspec.convert({"name": name, **table}, type=ModelEntry)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError, TypeError) as error:
        raise UsageError(f"{path}: {error}", "mend or remove that file") from error
    return models


def as_text(models: Mapping[str, ModelEntry]) -> str:
    """Returns the text of `models.toml`, without the shipped model and without empty fields."""
    parts = []
    for entry in models.values():
        if entry.name == SHIPPED_NAME:
            continue
        fields = msgspec.to_builtins(entry)
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items() if _is_set(value)]
        parts.append(
            "\n".join([f'["{entry.name}"]', *(line for line in lines if not line.startswith("name ="))]) + "\n"
        )
    return "\n".join(parts)


def entry_for(where: str, name: str = "", **fields: object) -> ModelEntry:
    """Returns a registry entry for a path, hub name or URL, with the given `name` or a short form of `where`. Raises
    UsageError, and ModelNotFoundError if a path does not exist."""
    kind, where = _kind(where)
    document = {"name": name or _short(where), "kind": kind.value, "where": where, **fields}
    try:
        return msgspec.convert(document, type=ModelEntry)
    except msgspec.ValidationError as error:
        raise UsageError(f"model {document['name']!r}: {error}", "kernel-assistant models add --help") from error


def find(word: str, settings: Settings) -> ModelEntry:
    """Returns the entry for `word`: a registered name, else a path, hub name or URL; "" is the model in use.

    Raises NoModelError if no model is in use, ModelNotFoundError if the word names no model.
    """
    known = entries()
    word = word or settings.model or (SHIPPED_NAME if SHIPPED_NAME in known else "")
    if not word:
        raise NoModelError
    if word in known:
        entry = known[word]
        if not entry.is_there:
            raise ModelNotFoundError(f"{entry.where} (model {word}) is not there any more", f"models remove {word}")
        return entry
    try:
        return entry_for(word)
    except ModelNotFoundError as error:
        raise ModelNotFoundError(error.cause + did_you_mean(word, known), error.next_step) from error


def price_of(entry: ModelEntry, otherwise: Price | None, money: float | None) -> Price | None:
    """Returns a model's price: its own, or else `otherwise`, which may be None. Raises UsageError if there is a limit
    `money`, but no price."""
    price = entry.price or otherwise
    if money is not None and price is None:
        raise UsageError(
            f"--money needs the price of {entry.name} ({entry.where}), which is not known",
            "kernel-assistant models add NAME WHERE --price-in X --price-out Y, or the settings price_in and price_out",
        )
    return price


def key_of(entry: ModelEntry) -> str:
    """Returns an endpoint's API key, "" if it needs none. Raises UsageError if the environment variable with the key is
    not set."""
    if not entry.key_variable:
        return ""
    key = os.environ.get(entry.key_variable, "")
    if not key:
        raise UsageError(
            f"{entry.key_variable} is not set, and {entry.name} needs it", f"export {entry.key_variable}=…"
        )
    return key


def _is_set(value: object) -> bool:
    """Whether the value of a field is written to `models.toml`. Empty values are not, but 0.0 is, since a price may be
    0."""
    return bool(value) or isinstance(value, float)


def _kind(where: str) -> tuple[ModelKind, str]:
    """Returns the kind of a location, and the location as it is stored: paths absolute, URLs without a slash at the
    end."""
    if re.match(r"https?://", where):
        return ModelKind.endpoint, where.rstrip("/")
    path = Path(where).expanduser().absolute()
    if path.is_file():
        return ModelKind.gguf, str(path)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelNotFoundError(f"{where} holds no config.json", "name a model's folder, or a GGUF file")
        return ModelKind.folder, str(path)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", where) and not where.startswith(".") and not where.endswith(".gguf"):
        return ModelKind.hub, where
    raise ModelNotFoundError(
        f"no model {where!r}: no registered name, no file or folder, no hub name (OWNER/NAME)",
        "kernel-assistant models list shows what there is",
    )


def _short(where: str) -> str:
    word = re.sub(r"^https?://", "", where).rstrip("/")
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", word.rpartition("/")[2] or word).removesuffix(".gguf").strip("-._")
    return word or "model"
