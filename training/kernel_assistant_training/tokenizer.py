"""The vocabulary: `python -m kernel_assistant_training tokenizer FOLDER` trains it on the project's own corpus.

Byte-level BPE, digits apart, then GPT-2's splitting: what llama.cpp knows as `starcoder`. No token holds more than one
part of an operator's name (`cum`, `sum`, `prod`, which are cut out first): a name that was never seen is then a new row
of known parts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from kernel_assistant.errors import InternalError
from kernel_assistant.serving.template import CONTROL_TOKENS, MARKER_TOKENS, TRAINING_TEMPLATE, TURN_END, render
from kernel_assistant_training.source import TARGETS, Source, pairs_of

#: The committed one.
VOCABULARY = Path(__file__).parent / "vocabulary"
SIZE = 4096
CONTEXT = 4096
#: Ids are a multiple of this, so that matrix products over the vocabulary have whole tiles.
_TILE = 64
PAIRS_EACH = 20_000
#: Of names of operators: what means the same in each of them. A blank in front belongs to none, so that a part is one
#: token wherever it stands.
PARTS = ("cum", "sum", "prod", "max", "min", "soft", "hard", "log", "exp", "pool", "sigmoid", "tanh", "swish")
_SKILLS = Path(__file__).resolve().parents[2] / "kernel_assistant" / "skills"
#: What the judge says to a compact conversation, beside pairs: numbers, places, common words of compilers.
_OBSERVATIONS = (
    "ok .214 compile .198 floor .120 regs 40 spill 16",
    "wrong out0[3,17] got 1.2 want .8",
    "wrong out1[0] got nan want -3.4e+05",
    'compile L12 identifier "t2" is undefined',
    "compile L7 'v' was not declared in this scope; did you mean 'w'?",
    'compile L9 no instance of function template "ka::row" matches the argument list',
    "compile L9 expected ';' before '}' token",
    "compile L4 no member named 'x1' in 'k0_args'; cannot convert 'const float*' to 'float*'",
    "refused launch has no argument x0",
    "plan L2 'y' is no buffer and no size; buffers: x0, p0, out0; sizes: B",
    "memory illegal address runtime_error timeout launch failed too many resources requested for launch",
    "plan: T=256 V=4 I=2",
)


def train(texts: Iterable[str], size: int = SIZE) -> Tokenizer:
    """At most `size` tokens, the control tokens first, parts and markers last."""
    tokenizer = Tokenizer(models.BPE())
    cuts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    # What is cut out later is not to be learned.
    parts = pre_tokenizers.Split(Regex("|".join(PARTS)), "removed")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, parts])
    tokenizer.decoder = decoders.ByteLevel()
    own = (*PARTS, *MARKER_TOKENS)
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(own),
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        max_token_length=24,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.add_tokens([AddedToken(one, normalized=False, special=False) for one in own])
    return tokenizer


def corpus(sources: Iterable[Source], count: int) -> Iterator[str]:
    """`count` conversations of each source, the headers, SKILL.md and observations."""
    for source in sources:
        for messages in islice(source(0), count):
            yield render(messages, answer=False)
    for file in [*sorted((_SKILLS / "include").rglob("*.*h")), _SKILLS / "SKILL.md"]:
        yield file.read_text(encoding="utf-8")
    # As often as a word that should be a token has to occur.
    for _ in range(20):
        yield from _OBSERVATIONS


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """Ids of the model: its tokens, filled up to whole tiles."""
    return -(-int(tokenizer.get_vocab_size()) // _TILE) * _TILE


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """As a Hugging Face folder has it, with the template that marks what the assistant wrote."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.encode_special_tokens = False
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "eos_token": TURN_END,
        "pad_token": CONTROL_TOKENS[0],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TRAINING_TEMPLATE, encoding="utf-8")


def load(folder: Path = VOCABULARY) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def id_of(tokenizer: Tokenizer, token: str) -> int:
    """Raises InternalError for a vocabulary of another template."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise InternalError(f"the vocabulary has no token {token}", "train it again")
    return int(found)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="kernel_assistant_training tokenizer", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write; the committed one is beside this file")
    parser.add_argument("--pairs", type=int, default=PAIRS_EACH, help="conversations of each target")
    options = parser.parse_args(words)
    sources = [pairs_of(target) for target in TARGETS]
    tokenizer = train(corpus(sources, options.pairs))
    save(tokenizer, options.folder)
    sys.stdout.write(f"{tokenizer.get_vocab_size()} tokens\n")
