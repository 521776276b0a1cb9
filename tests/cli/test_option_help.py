"""The help of an option names what it is: it begins with a noun, in every command and every stage of training."""

from __future__ import annotations

from typing import get_args

import click

from kernel_assistant.cli.app import cli
from kernel_assistant.cli.services.train import STAGES
from kernel_assistant_training.options.commands import COMMANDS, command
from kernel_assistant_training.options.data import EpisodesArguments
from kernel_assistant_training.options.groups import Clock, Engine, Profile, Scheme, Target
from kernel_assistant_training.options.stages import PretrainOptions
from kernel_assistant_training.pipeline.kinds import KINDS

#: Words that begin a clause, or a phrase that is none of a noun: prepositions, conjunctions, adverbs, pronouns.
NO_NOUN = frozenset(
    """
    about above across after against all alone along also although always among and another anyway around as
    at away back because before behind below beneath beside besides between beyond both but by can do does
    during each either else even ever every everything except few for from further has have he here how i if
    in inside instead into is it its just like may more most must neither never no none nor not nothing of
    off often on once one only onto or other otherwise our out outside over per perhaps rather same several
    shall she should since so some something such than that the their them then there these they this those
    though through throughout thus to together too toward under unless unlike until up upon us we what
    whatever when whenever where whether which while who whom whose why will with within without would you
    your
    """.split()
)
#: What command lines ask for. Words that are as often nouns (name, time, report, start) are told apart by what follows.
VERBS = frozenset(
    """
    accept add allow append apply ask avoid become begin begins bring build call choose clean clear close
    come compare compile compute continue convert copy create decode delete disable display divide draw drop
    enable end ends ensure evaluate exclude execute exit fail fetch find finish fit follow force generate
    get give go handed hide ignore include increase insert install keep keeps leave let list load look make
    measure merge move omit open override overwrite pass pick play prevent print process put quit raise read
    record redo register remove rename render repeat replace require reset restrict resume return run save
    say search see select send set shard show skip speak specify stop store take tell test train treat try
    turn update use verify wait warn work write
    """.split()
)
#: After a noun comes no determiner; after a verb comes its object.
OBJECT = frozenset("a an the this these those each every all any no its your their them it what how one".split())


def begins_with_a_noun(text: str) -> bool:
    words = text.replace(",", " ,").split()
    if not words or not words[0][0].isalnum() or not words[0][0].isupper():
        return False
    first, second = words[0].lower().strip(".:;"), words[1].lower() if len(words) > 1 else ""
    if words[0].endswith((":", ";")):
        second = ""
    if first in ("most", "all", "a", "other"):
        # A noun with a word before it: "Most steps of a task", "All evaluations".
        return bool(second) and second not in NO_NOUN and second not in VERBS
    return first not in NO_NOUN and first not in VERBS and second not in OBJECT


def options_of(group: click.Command, name: str):
    if isinstance(group, click.Group):
        for each in group.list_commands(click.Context(group)):
            yield from options_of(group.get_command(click.Context(group), each), f"{name} {each}".strip())
    yield from ((name, option) for option in group.params if isinstance(option, click.Option))


EVERY = [*options_of(cli, ""), *(found for name in COMMANDS for found in options_of(command(name), f"train {name}"))]


def test_help_begins_with_a_noun():
    assert len(EVERY) > 200
    wrong = [(name, option.opts[0], option.help) for name, option in EVERY if not begins_with_a_noun(option.help or "")]
    assert wrong == []


def test_what_does_not_begin_with_one_is_found():
    texts = """
        that judge/of each task/Of all stages./Who writes the kernels./How many./What a model says./Where to listen.
        Only check values./Also where no gain was confirmed./Print one JSON object and nothing else.
        Name the folder of the run./Time each line of a module./Measure what gains without a kernel.
        With --scan ID: the classes worth most./After which no candidate begins./Its name there.
        the same on any machine/Most of a task.
    """
    found = [text.strip() for text in texts.strip().replace("\n", "/").split("/")]
    assert len(found) == 18 and [text for text in ("", *found) if begins_with_a_noun(text)] == []


def test_every_stage_has_its_options():
    assert set(STAGES) <= {name.replace("_", "-") for name in COMMANDS}
    assert set(KINDS) <= set(STAGES)


def test_choices_and_defaults_are_those_of_the_code():
    """Options load fast, so they repeat what is defined where much is loaded."""
    from kernel_assistant.agent.profiles import PROFILES
    from kernel_assistant_training.lessons.lesson import FAULTS
    from kernel_assistant_training.nominal import CLOCKS
    from kernel_assistant_training.ppo.engines.engine import KINDS as ENGINES
    from kernel_assistant_training.ppo.rewards import SCHEMES
    from kernel_assistant_training.ppo.updates.update import BASELINES
    from kernel_assistant_training.source import COMPOSE_SHARE, TARGETS, TRACED_SHARE
    from kernel_assistant_training.stages.fine_tuning import TRAINERS
    from kernel_assistant_training.stages.pretrain import SHAPES
    from kernel_assistant_training.synth.sampler import LEVELS
    from kernel_assistant_training.tasks.filter import WINDOWS

    def choices(name: str, option: str) -> set[str]:
        (found,) = (one for one in command(name).params if one.name == option)
        return set(found.type.choices)

    assert choices("sft", "trainer") == set(TRAINERS)
    assert choices("pretrain", "shape") == set(SHAPES)
    assert choices("ppo_agent", "baseline") == set(BASELINES)
    assert choices("synth", "recipe") == set(WINDOWS)
    known = [(Engine, ENGINES), (Target, TARGETS), (Clock, CLOCKS), (Profile, PROFILES), (Scheme, SCHEMES)]
    assert all(set(get_args(of)) == set(names) for of, names in known)
    assert (PretrainOptions.compose_share, PretrainOptions.target) == (COMPOSE_SHARE, TARGETS)
    assert PretrainOptions.traced_share == TRACED_SHARE
    assert (EpisodesArguments.faults, EpisodesArguments.level) == (FAULTS, LEVELS[-1])
