"""The commands `kernel-assistant models list|use|add|remove|info|test`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from kernel_assistant.apply.files import write_atomically
from kernel_assistant.cli.common import json_option, settings_for
from kernel_assistant.cli.machine.config import set_user_value
from kernel_assistant.cli.text import say_warning, table
from kernel_assistant.config import did_you_mean
from kernel_assistant.errors import EXIT_GATE, EXIT_OK, MissingError, UsageError
from kernel_assistant.serving.card import card_of
from kernel_assistant.serving.llama.gguf_header import read_header
from kernel_assistant.serving.registry import (
    SHIPPED_NAME,
    ModelEntry,
    ModelKind,
    as_text,
    entries,
    entry_for,
    find,
    registry_file,
)

_NONE = "no model installed; kernel-assistant models add NAME FILE|FOLDER|HUB/NAME|URL"


@click.group("models")
def models_command() -> None:
    """Language models that can write kernels; the generator needs none."""


@models_command.command("list")
@json_option
def list_command(as_json: bool) -> int:
    """Every registered model, and which one is used."""
    known = entries()
    used = settings_for(None).model or (SHIPPED_NAME if SHIPPED_NAME in known else "")
    if as_json:
        print(json.dumps({"used": used, "models": [msgspec.to_builtins(entry) for entry in known.values()]}))
        return EXIT_OK
    rows: list[tuple[str, ...]] = [
        (
            "*" if name == used else "",
            name,
            entry.kind.value,
            entry.where + ("" if entry.is_there else " (not there)"),
        )
        for name, entry in known.items()
    ]
    if used and used not in known:
        rows.append(("*", used, "", "(not registered)"))
    print("\n".join(table(("", "name", "kind", "where"), rows)) if rows else _NONE)
    return EXIT_OK


@models_command.command("use")
@click.argument("model")
def use_command(model: str) -> int:
    """Let every command use MODEL: a registered name, a file, a folder, OWNER/NAME or a URL."""
    entry = find(model, settings_for(None))
    word = entry.name if entry.name in entries() else entry.where
    set_user_value("model", word)
    print(f"using {word} ({entry.kind.value} {entry.where})")
    return EXIT_OK


@models_command.command("add")
@click.argument("name")
@click.argument("where")
@click.option("--remote-name", default="", help="Model to ask for at an endpoint.")
@click.option("--key-variable", default="", help="Environment variable with the key of an endpoint.")
@click.option("--price-in", type=float, metavar="X", help="Price of a million tokens that it reads.")
@click.option("--price-out", type=float, metavar="Y", help="Price of a million tokens that it writes.")
@click.option("--compact", is_flag=True, help="A small model, trained on the compact prompts.")
def add_command(name: str, where: str, **fields: object) -> int:
    """Register WHERE (a GGUF file, a folder, OWNER/NAME or a URL) as NAME."""
    known = entries()
    if name in known:
        raise UsageError(f"there is a model {name} already ({known[name].where})", f"models remove {name}")
    entry = entry_for(where, name, **fields)
    _write({**known, name: entry})
    print(f"{name}: {entry.kind.value} {entry.where}")
    header = read_header(Path(entry.where)) if entry.kind is ModelKind.gguf else None
    if header is not None and not header.chat_template:
        say_warning(f"{name} has no chat template: it is no chat model, and will hardly write kernels")
    if entry.kind is ModelKind.endpoint:
        _ask(name)
    return EXIT_OK


def _ask(name: str) -> None:
    """Prints the first answers of `models test` for the endpoint that was just registered; a warning if it does not
    answer."""
    from kernel_assistant.cli.services.model_questions import first_answers

    try:
        for answer in first_answers(settings_for(None), name):
            print(answer.line(), flush=True)
    except (MissingError, UsageError) as error:
        say_warning(f"{name} does not answer now: {error.cause} ({error.next_step}); then: models test {name}")


@models_command.command("remove")
@click.argument("name")
def remove_command(name: str) -> int:
    """Forget NAME. Its files stay."""
    known = entries()
    if name not in known or name == SHIPPED_NAME:
        cause = f"no model {name} is registered{did_you_mean(name, known)}"
        if name == SHIPPED_NAME:
            cause = f"{name} comes with the package and stays; another is used after: models use NAME"
        raise UsageError(cause, "kernel-assistant models list")
    _write({other: entry for other, entry in known.items() if other != name})
    print(f"forgot {name}; {known[name].where} is as it was")
    return EXIT_OK


@models_command.command("info")
@click.argument("model", default="")
@json_option
def info_command(model: str, as_json: bool) -> int:
    """What is known of MODEL (default: the one in use), with its card: what it was made of, how well it does."""
    entry = find(model, settings_for(None))
    facts = msgspec.to_builtins(entry) | _facts(entry)
    card = card_of(Path(entry.where)) if entry.kind is ModelKind.gguf else None
    if as_json:
        print(json.dumps(facts | ({"card": msgspec.to_builtins(card)} if card else {})))
        return EXIT_OK
    lines = [f"{name}: {_shown(value)}" for name, value in facts.items() if value not in ("", None)]
    print("\n".join(lines + (card.lines() if card else [])))
    return EXIT_OK


@models_command.command("test")
@click.argument("model", default="")
def test_command(model: str) -> int:
    """Ask MODEL (default: the one in use) five small questions, which takes a minute.

    Reachable, context, speed, whether its tool calls can be read, whether a kernel for a small module comes out right.
    Exit code 1 if an answer will not do, 3 if the model cannot be reached.
    """
    from kernel_assistant.cli.services.model_questions import answers

    settings = settings_for(None)
    word = model or settings.endpoint or settings.model or SHIPPED_NAME
    passed = True
    for answer in answers(settings, word):
        passed = passed and answer.passed
        print(answer.line(), flush=True)
    return EXIT_OK if passed else EXIT_GATE


def _facts(entry: ModelEntry) -> dict[str, Any]:
    path = Path(entry.where)
    if entry.kind is ModelKind.gguf:
        from kernel_assistant.serving.convert_run import gguf_info

        try:
            inside: object = gguf_info(path)
        except MissingError as error:
            inside = f"not looked into: {error.cause} ({error.next_step})"
        return {"bytes": path.stat().st_size, "gguf": inside}
    if entry.kind is ModelKind.folder:
        try:
            config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {path / 'config.json'}: {error}", "mend that file") from error
        size = sum(file.stat().st_size for file in path.glob("*.safetensors"))
        return {"bytes": size, "architectures": config.get("architectures"), "config": config}
    return {}


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(item)}" for name, item in value.items())
    return "/".join(map(str, value)) if isinstance(value, list) else str(value)


def _write(models: dict[str, ModelEntry]) -> None:
    write_atomically(registry_file(), as_text(models).encode())
