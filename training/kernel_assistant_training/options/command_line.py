"""Makes a click command from a dataclass: each field that `option` or `argument` made is a parameter of the command.

The type of the parameter is that of the field: int, float, str, bool, Path, a Literal of choices, one of these or None,
or a tuple of them. The option for a tuple takes all words up to the next option (`--episodes a b`) and may be
repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click

from kernel_assistant.errors import UsageError

T = TypeVar("T")
_MADE_BY = "kernel_assistant_training.option"
_SIMPLE: dict[type, click.ParamType[Any]] = {int: click.INT, float: click.FLOAT, str: click.STRING}
#: Defaults that say nothing to a reader: no limit.
UNBOUNDED = (1 << 62, float("inf"))


def option(
    default: Any = MISSING,
    help: str = "",  # noqa: A002 - click's own name
    *,
    flag: str = "",
    metavar: str | None = None,
    empty: bool = False,
    shown: str = "",
    type: Any = None,  # noqa: A002 - click's own name
) -> Any:
    """Returns a dataclass field that is an option. Without a `default` the option is required. `shown` replaces the
    default in the help. `flag` is the option's name if it differs from the field's name. If `empty`, the option may
    have no words after it. `type` is a click type, for fields whose own type does not suffice."""
    how = {"help": help, "flag": flag, "metavar": metavar, "empty": empty, "shown": shown}
    return field(default=default, kw_only=True, metadata={_MADE_BY: {**how, "type": type}})


def argument(metavar: str) -> Any:
    """Returns a dataclass field for the words of the command line that belong to no option; at least one is
    required."""
    return field(kw_only=True, metadata={_MADE_BY: {"argument": metavar}})


def command_of(options: type[T], name: str, run: Callable[[T], object]) -> click.Command:
    """Returns the click command `name`, which passes its parsed options to `run`. Its help is the docstring of the
    dataclass."""
    hints = get_type_hints(options)
    made = [one for one in fields(options) if _MADE_BY in one.metadata]  # type: ignore[arg-type]
    return _StageCommand(
        name,
        params=[_parameter(one, hints[one.name], one.metadata[_MADE_BY]) for one in made],
        callback=lambda **values: run(options(**values)),
        help=options.__doc__,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )


def parse(options: type[T], name: str, words: Sequence[str]) -> T:
    """Parses the words of a command line and returns the options. Raises UsageError."""
    command = command_of(options, name, lambda parsed: parsed)
    try:
        with command.make_context(name, list(words)) as context:
            return options(**context.params)
    except click.ClickException as error:
        raise _usage(error, name) from error


def invoke(command: click.Command, words: Sequence[str]) -> None:
    """Runs the command with `words` as its arguments. Raises UsageError for invalid words, and KeyboardInterrupt if the
    command was interrupted."""
    try:
        command.main(list(words), prog_name=command.name, standalone_mode=False)
    except click.ClickException as error:
        raise _usage(error, str(command.name)) from error
    except click.Abort as error:
        raise error.__cause__ or KeyboardInterrupt from error


def _usage(error: click.ClickException, name: str) -> UsageError:
    return UsageError(error.format_message(), f"see {name} --help")


class _SeveralOption(click.Option):
    """An option that takes all words up to the next option."""

    def __init__(self, names: list[str], *, empty: bool, **settings: Any) -> None:
        super().__init__(names, multiple=True, **settings)
        self.may_be_empty = empty


class _StageCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(self._one_by_one(args)))

    def _one_by_one(self, words: list[str]) -> Iterator[str]:
        """Replaces `--name a b` by `--name a --name b`, the form that click parses. Raises click.BadOptionUsage."""
        several = {name: one for one in self.params if isinstance(one, _SeveralOption) for name in one.opts}
        open_option, empty = "", False
        for word in [*words, "--"]:
            if not word.startswith("--") and word != "-h":
                yield from (open_option, word) if open_option else (word,)
                empty = False
                continue
            if empty and not several[open_option].may_be_empty:
                raise click.BadOptionUsage(open_option, f"Option {open_option!r} requires an argument.")
            open_option = word if word in several else ""
            empty = bool(open_option)
            if not open_option:
                yield word


def _parameter(one: Field[Any], hint: Any, how: dict[str, Any]) -> click.Parameter:
    if "argument" in how:
        path = click.Path(path_type=Path)
        return click.Argument([one.name], type=path, nargs=-1, required=True, metavar=how["argument"])
    name = how["flag"] or f"--{one.name.replace('_', '-')}"
    settings: dict[str, Any] = {"help": how["help"], "required": one.default is MISSING, "metavar": how["metavar"]}
    if one.default is not MISSING:
        settings["default"] = one.default
        settings["show_default"] = how["shown"] or one.default not in (None, "", False, (), *UNBOUNDED)
    either = get_origin(hint) in (Union, UnionType)
    inner = next(each for each in get_args(hint) if each is not type(None)) if either else hint
    if inner is bool:
        both = [f"{name}/--no-{name.removeprefix('--')}"] if either else [name]
        return click.Option([*both, one.name], is_flag=True, **settings)
    if get_origin(inner) is tuple:
        settings["type"] = _type(get_args(inner)[0], how)
        if not isinstance(settings["type"], click.Choice):
            settings["metavar"] = f"{how['metavar'] or 'PATH'}..."
        return _SeveralOption([name, one.name], empty=how["empty"], **settings)
    return click.Option([name, one.name], type=_type(inner, how), **settings)


def _type(hint: Any, how: dict[str, Any]) -> Any:
    if how["type"] is not None:
        return how["type"]
    if get_origin(hint) is Literal:
        return click.Choice(get_args(hint))
    return click.Path(path_type=Path) if hint is Path else _SIMPLE[hint]
