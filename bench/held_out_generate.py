"""Answers of a model, many at once: JSON comes on standard input and goes to standard output.

A process of its own, started by `held_out_answers.py`, so that the GPU's memory is free again when answers are judged.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "training")]

import torch  # noqa: E402 - after the path, like everything below
from tokenizers import Tokenizer  # noqa: E402

from kernel_assistant.records.transcript import Message  # noqa: E402
from kernel_assistant.serving.best_first import WIDTH, Beginning, BestFirst  # noqa: E402
from kernel_assistant.serving.template import TURN_END  # noqa: E402
from kernel_assistant_training.conversation import Encoder  # noqa: E402
from kernel_assistant_training.decode import Asked, Decoder  # noqa: E402
from kernel_assistant_training.folder import load_folder  # noqa: E402
from kernel_assistant_training.tokenizer import id_of, load  # noqa: E402

#: Conversations at once.
ROWS = {"cuda": 512, "cpu": 32}


def main() -> None:
    asked = json.load(sys.stdin)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = Path(asked["folder"])
    tokenizer = load(folder)
    encoder, end, most = Encoder(tokenizer), id_of(tokenizer, TURN_END), asked["tokens"]
    prompts = [encoder.prompt([Message(**message) for message in prompt]) for prompt in asked["prompts"]]
    rows, context = min(ROWS[device.type], len(prompts)), max(map(len, prompts)) + most
    decoder = Decoder(load_folder(folder), end, rows=rows, context=context, device=device, width=WIDTH)
    searches, found = [BestFirst() for _ in prompts], list[list[list[int]]]([[] for _ in prompts])
    began, sampled = time.monotonic(), 0
    for _ in range(asked["count"]):
        begun = [search.next() or Beginning() for search in searches]
        for place, ids in enumerate(_further(decoder, prompts, begun, searches, most)):
            found[place].append(ids)
            sampled += len(ids) - len(begun[place].ids)
    seconds = time.monotonic() - began
    answers = [[[_text(tokenizer, ids, end), len(ids)] for ids in each] for each in found]
    json.dump({"answers": answers, "tokens_per_second": sampled / seconds}, sys.stdout)


def _further(
    decoder: Decoder, prompts: Sequence[list[int]], begun: Sequence[Beginning], searches: Sequence[BestFirst], most: int
) -> list[list[int]]:
    """The likeliest answer to each prompt with its beginning, which the search is told."""
    whole = [place for place, one in enumerate(begun) if one.ids[-1:] == (decoder.end,) or len(one.ids) >= most]
    going = [place for place in range(len(prompts)) if place not in set(whole)]
    asked = [
        Asked([*prompts[place], *begun[place].ids], temperature=0.0, most=most - len(begun[place].ids))
        for place in going
    ]
    found = {place: list(begun[place].ids) for place in whole}
    for place, reply in zip(going, decoder.decode(asked), strict=True):
        start = begun[place]
        found[place] = [*start.ids, *reply.ids]
        others = [*([()] * len(start.ids)), *reply.others]
        searches[place].add(start, found[place], [*start.logprobs, *reply.logprobs], others)
    return [found[place] for place in range(len(prompts))]


def _text(tokenizer: Tokenizer, ids: list[int], end: int) -> str:
    said = ids[:-1] if ids[-1:] == [end] else ids
    return str(tokenizer.decode(said, skip_special_tokens=False))


if __name__ == "__main__":
    main()
