"""The vocabulary: `python -m kernel_assistant_training tokenizer FOLDER` trains it on the project's own corpus.

The vocabulary is a byte-level BPE with one list of tokens and two ways to cut a text before pairs are merged:

* What a model reads is cut between digits and then as GPT-2 does; llama.cpp calls this `starcoder`. Parts of operator
  names (`cum`, `sum`, `prod`) are cut out first, so that no token has more than one part. So a name that was never
  seen consists of known parts.
* What a model writes is cut only at the end of each line (`ReplyTokenizer`), so that a line of a kernel is a few
  tokens. A program that serves a model samples these tokens and has to keep the tokens of earlier replies, as the
  embedded engine and clients that send token ids do. A server that gets earlier replies as text cuts it as read text.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from kernel_assistant.errors import InternalError, UsageError
from kernel_assistant.serving.template import CONTROL_TOKENS, MARKER_TOKENS, TRAINING_TEMPLATE, TURN_END
from kernel_assistant_training.options.data import TokenizerArguments
from kernel_assistant_training.reply import CONTEXT
from kernel_assistant_training.source import TARGETS, Source, pairs_of

#: The vocabulary of this repository.
VOCABULARY = Path(__file__).parent / "vocabulary"
SIZE = 6144
#: Most characters of a token.
LONGEST = 32
#: The number of ids is a multiple of this, so that matrix products over the vocabulary have whole tiles.
_TILE = 64
#: Parts of operator names with the same meaning in each. A preceding blank is separate, so that a part is always the
#: same token.
PARTS = ("cum", "sum", "prod", "max", "min", "soft", "hard", "log", "exp", "pool", "sigmoid", "tanh", "swish")
#: Marks in a corpus the positions where a text is cut; no text has this character.
_CUT = "\0"
_MARKERS = re.compile(f"({'|'.join(map(re.escape, MARKER_TOKENS))})")
_LINES = pre_tokenizers.Split("\n", "merged_with_previous")
#: Examples of the judge's messages in a compact conversation: numbers, positions, common words of compilers.
_OBSERVATIONS = (
    "ok .214 compile .198 floor .120 regs 40 spill 16",
    "wrong out0[3,17] got 1.2 want .8",
    "wrong out1[0] got nan want -3.4e+05",
    'compile L12 identifier "t2" is undefined',
    "compile L7 'v' was not declared in this scope; did you mean 'w'?",
    "compile L9 expected ';' before '}' token",
    "compile L4 no member named 'x1' in 'k0_args'; cannot convert 'const float*' to 'float*'",
    "refused launch has no argument x0",
    "plan L2 'y' is no buffer and no size; buffers: x0, p0, out0; sizes: B",
    "memory illegal address runtime_error timeout launch failed too many resources requested for launch",
)


@dataclass(frozen=True)
class CorpusText:
    """A text on which the vocabulary is trained. Models write it if it is a `reply`; otherwise they read it."""

    text: str
    reply: bool = False


def train(texts: Iterable[CorpusText], size: int = SIZE) -> Tokenizer:
    """Trains a vocabulary of at most `size` tokens on the texts and returns it. Control tokens come first; the fixed
    tokens of PARTS (pieces of operator names, and words that mark lines) come last."""
    tokenizer = Tokenizer(models.BPE())
    cuts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    # Parts that are cut out later must not be learned.
    parts = pre_tokenizers.Split(Regex("|".join(PARTS)), "removed")
    # `_pieces` has cut the texts already.
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(_CUT, "removed"), bytes_alone])
    tokenizer.decoder = decoders.ByteLevel()
    own = (*PARTS, *MARKER_TOKENS)
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(own),
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        max_token_length=LONGEST,
        show_progress=False,
    )
    reading = pre_tokenizers.Sequence([*cuts, parts])
    tokenizer.train_from_iterator((_pieces(text, reading) for text in texts), trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.add_tokens([AddedToken(one, normalized=False, special=False) for one in own])
    return tokenizer


class ReplyTokenizer:
    """Encodes the text that a model writes with the tokens of a vocabulary. Pairs are merged within a line, also across
    the parts of operator names; text that looks like a control token stays text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        document = json.loads(tokenizer.to_str())
        document["added_tokens"] = []
        self._lines = Tokenizer.from_str(json.dumps(document))
        bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._lines.pre_tokenizer = pre_tokenizers.Sequence([_LINES, bytes_alone])
        self._markers = {marker: id_of(tokenizer, marker) for marker in MARKER_TOKENS}

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in _MARKERS.split(text):
            ids += [self._markers[part]] if part in self._markers else self._lines.encode(part).ids
        return ids


def _pieces(text: CorpusText, reading: pre_tokenizers.Sequence) -> str:
    """Returns the text with the character `_CUT` at each position across which pairs must not be merged."""
    pieces = (_LINES if text.reply else reading).pre_tokenize_str(text.text)
    return _CUT.join(text.text[begin:end] for _, (begin, end) in pieces)


def corpus(sources: Iterable[Source], count: int) -> Iterator[CorpusText]:
    """Yields the messages of `count` conversations of each source, and example observations."""
    for source in sources:
        for messages in islice(source(0), count):
            for message in messages:
                yield CorpusText(message.content, reply=message.role == "assistant")
    # As often as a word must occur to become a token.
    for _ in range(20):
        yield from map(CorpusText, _OBSERVATIONS)


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """Returns the number of token ids in a model: the size of the vocabulary, rounded up to whole tiles of matrix
    products."""
    return -(-int(tokenizer.get_vocab_size()) // _TILE) * _TILE


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Saves the vocabulary as a Hugging Face folder, with the chat template that marks what the assistant wrote."""
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
    """Returns the id of a token. Raises InternalError if the vocabulary lacks the token because it was made for another
    template."""
    number = tokenizer.token_to_id(token)
    if number is None:
        raise InternalError(f"the vocabulary has no token {token}", "train it again")
    return int(number)


def main(options: TokenizerArguments) -> None:
    if len(options.folder) > 1:
        raise UsageError("the vocabulary is written into one folder", "name one FOLDER")
    sources = [pairs_of(target) for target in TARGETS]
    tokenizer = train(corpus(sources, options.pairs))
    save(tokenizer, options.folder[0])
    sys.stdout.write(f"{tokenizer.get_vocab_size()} tokens\n")
