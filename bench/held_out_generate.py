"""Generates answers of a model, many at once: reads JSON from standard input and writes JSON to standard output.

`held_out_answers.py` starts it as a process of its own, so that the GPU's memory is free again when answers are judged.
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
from kernel_assistant.serving.llama.best_first import WIDTH, BestFirstSearch, PartialReply  # noqa: E402
from kernel_assistant.serving.template import TURN_END  # noqa: E402
from kernel_assistant_training.conversation import Encoder  # noqa: E402
from kernel_assistant_training.decode import Decoder, GenerationRequest  # noqa: E402
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
    searches, collected = [BestFirstSearch() for _ in prompts], list[list[list[int]]]([[] for _ in prompts])
    began, sampled = time.monotonic(), 0
    for _ in range(asked["count"]):
        begun = [search.next() or PartialReply() for search in searches]
        for index, ids in enumerate(_further(decoder, prompts, begun, searches, most)):
            collected[index].append(ids)
            sampled += len(ids) - len(begun[index].ids)
    seconds = time.monotonic() - began
    answers = [[[_text(tokenizer, ids, end), len(ids)] for ids in each] for each in collected]
    json.dump({"answers": answers, "tokens_per_second": sampled / seconds}, sys.stdout)


def _further(
    decoder: Decoder,
    prompts: Sequence[list[int]],
    begun: Sequence[PartialReply],
    searches: Sequence[BestFirstSearch],
    most: int,
) -> list[list[int]]:
    """Completes each prompt with its beginning greedily, and adds the result to its search."""
    whole = [index for index, one in enumerate(begun) if one.ids[-1:] == (decoder.end,) or len(one.ids) >= most]
    going = [index for index in range(len(prompts)) if index not in set(whole)]
    asked = [
        GenerationRequest([*prompts[index], *begun[index].ids], temperature=0.0, most=most - len(begun[index].ids))
        for index in going
    ]
    completed = {index: list(begun[index].ids) for index in whole}
    for index, reply in zip(going, decoder.decode(asked), strict=True):
        start = begun[index]
        completed[index] = [*start.ids, *reply.ids]
        others = [*([()] * len(start.ids)), *reply.others]
        searches[index].add(start, completed[index], [*start.logprobs, *reply.logprobs], others)
    return [completed[index] for index in range(len(prompts))]


def _text(tokenizer: Tokenizer, ids: list[int], end: int) -> str:
    written = ids[:-1] if ids[-1:] == [end] else ids
    return str(tokenizer.decode(written, skip_special_tokens=False))


if __name__ == "__main__":
    main()
