"""PPO updates of a large model with adapters on long conversations with tool calls; the run is killed once and
continued.

`python -m bench.base_model --out FOLDER --base FOLDER` makes a random model of 7 B parameters with a vocabulary of its
own, and has it play with the tools of the full profile. The replies of a random model are not calls. So after some
sampled tokens the tokens of a script's call follow, with the probabilities that the model gives them. Everything else
is the product's: tools, judge, trajectories, advantages, update, checkpoints. `--size tiny` rehearses on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from bench.harness import Row, RowFile
from kernel_assistant.environment.builds.headers import shipped
from kernel_assistant.serving.template import write_call
from kernel_assistant.session.training_run import TrainingCommand, ask
from kernel_assistant_training.decode import GenerationRequest, Reply
from kernel_assistant_training.episodes.subject import LessonTask, subjects
from kernel_assistant_training.evaluation.tasks import of_graph
from kernel_assistant_training.lessons.lesson import candidate_file
from kernel_assistant_training.ppo.chat.chat_format_template import TemplateChatFormat
from kernel_assistant_training.ppo.engines.engine import Engine
from kernel_assistant_training.ppo.engines.engine_options import EngineOptions
from kernel_assistant_training.ppo.model import policy_model
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.base import PolicyModelOptions
from kernel_assistant_training.ppo.play import PlayOptions
from kernel_assistant_training.ppo.stage import StageOptions, run
from kernel_assistant_training.ppo.trajectory import ReplySpans
from kernel_assistant_training.ppo.updates.batches import PaddedBatch
from kernel_assistant_training.ppo.updates.kl import KlControl
from kernel_assistant_training.ppo.updates.update import UpdateOptions
from tests.base.models import MARKS, TEMPLATE, vocabulary

#: Sizes of the models; 7b is that of Mistral 7B (7.24 B parameters).
SHAPE = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads".split()
SIZES = {"7b": (32000, 4096, 14336, 32, 32, 8), "tiny": (4000, 64, 128, 2, 4, 2)}
#: Characters of Python sources on which the vocabulary is trained.
CORPUS = {"7b": 30_000_000, "tiny": 2_000_000}
#: Tokens that the model samples in each reply, before the script's calls.
SAMPLED = 16


def make_base(folder: Path, size: str, device: torch.device) -> None:
    """Writes a model with random weights in bfloat16, and a byte-level vocabulary of the standard library's sources."""
    folder.mkdir(parents=True)
    shape = dict(zip(SHAPE, SIZES[size], strict=True))
    tokenizer = vocabulary(folder, TEMPLATE, shape["vocab_size"], _sources(CORPUS[size]))
    end = tokenizer.token_to_id(MARKS[-1])
    known = AutoConfig.for_model("llama", **shape, max_position_embeddings=131072, eos_token_id=end)
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with device:
        model: Any = AutoModelForCausalLM.from_config(known)  # type: ignore[no-untyped-call]
    torch.set_default_dtype(before)
    model.save_pretrained(folder, max_shard_size="4GB")


def _sources(most: int) -> Iterator[str]:
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*/*.py")):
        text = file.read_text(encoding="utf-8", errors="replace")
        most -= len(text)
        if most < 0:
            return
        yield text


#: The share of the context that is filled with files, and most tokens of one file of 400 lines.
SHARE, FILE = 0.9, 6000
#: Most calls in one reply.
MOST = 12


class Script:
    """Writes the calls of each reply. By the sampled tokens, about half of the episodes write a correct kernel."""

    def __init__(self, base: Path, subject: LessonTask, target: str, context: int) -> None:
        self._chat_format = TemplateChatFormat.load(base)
        self.ends = self._chat_format.ends
        self._context = context
        self._file, self._sources = candidate_file(target), self.sources(subject)
        self._files = sorted(shipped(), key=lambda name: -len(shipped()[name]))
        self._answer = self._chat_format.tokens("<|head|>assistant<|/head|>", plain=False)

    @staticmethod
    def sources(subject: LessonTask) -> tuple[str, str]:
        """The source of a correct kernel with the graph's own numbers, and one that does not compile."""
        known = {**subject.task.sizes, **subject.task.constants}
        right = re.sub(r"\b[CD]\d+\b", lambda name: repr(known[name[0]]), subject.answers[0].source)
        right = right.replace("#include", '#include "plan.h"\n#include', 1)
        return right, right.replace("{\n", "{\n  undeclared;\n", 1)

    def call(self, prompt: Sequence[int]) -> list[int]:
        """The tokens of the next calls and the end token."""
        ids, answer = list(prompt), self._answer
        positions = [position for position, one in enumerate(ids) if one == answer[0]]
        turn = sum(ids[position : position + len(answer)] == answer for position in positions) - 1
        words = "\n".join(self._calls(turn, ids))
        return [*self._chat_format.tokens(words, plain=True), self.ends[0]]

    def _calls(self, turn: int, prompt: Sequence[int]) -> list[str]:
        if turn == 0:
            written = json.dumps({"path": self._file, "text": self._sources[sum(prompt) % 2]})
            return [write_call("list", "{}"), write_call("write", written)]
        if turn == 1:
            return [write_call("evaluate", "{}")]
        room = int(SHARE * self._context - len(prompt)) // FILE
        if room < 1 or turn > len(self._files):
            return [write_call("finish", "{}")]
        first = MOST * (turn - 2)
        return [self._read(first + number) for number in range(min(room, MOST))]

    def _read(self, number: int) -> str:
        name, part = self._files[number % len(self._files)], number // len(self._files)
        return write_call("read", json.dumps({"path": f"reference/include/{name}", "first_line": 1 + 100 * part}))


class Driven:
    """An engine that appends a script's calls to each sampled reply, and records times and memory."""

    def __init__(self, engine: Engine, actor: Actor, script: Script, notes: Path) -> None:
        self._engine, self._actor, self._script, self._notes = engine, actor, script, notes
        self._spent = {"sampled": 0, "prompts": 0, "sample_seconds": 0.0, "script_seconds": 0.0}
        self._peak("start")

    def decode(self, asked: Sequence[GenerationRequest]) -> list[Reply]:
        began = time.monotonic()
        begun = self._engine.decode([replace(one, most=SAMPLED) for one in asked])
        sampled = time.monotonic()
        replies = [self._ended(one, reply) for one, reply in zip(asked, begun, strict=True)]
        self._spent["sampled"] += sum(len(one.ids) for one in begun)
        self._spent["prompts"] += sum(len(one.prompt) for one in asked)
        self._spent["sample_seconds"] += sampled - began
        self._spent["script_seconds"] += time.monotonic() - sampled
        return replies

    def rest(self) -> None:
        self._engine.rest()
        self._peak("play", **self._spent)
        self._spent = dict.fromkeys(self._spent, 0)

    def load(self, actor: Actor) -> None:
        self._peak("update")
        self._engine.load(actor)

    def close(self) -> None:
        self._engine.close()

    def _ended(self, asked: GenerationRequest, begun: Reply) -> Reply:
        """The sampled tokens followed by the script's calls, with the model's log-probabilities of both."""
        if begun.ended:
            return begun
        ids = [*begun.ids, *self._script.call([*asked.prompt, *begun.ids])][: asked.most]
        spans = ReplySpans((*asked.prompt, *ids), ((len(asked.prompt), len(ids)),), (0.0,) * len(ids))
        rows = PaddedBatch.of([spans], [0], self._actor.device)
        with torch.no_grad():
            logprobs = self._actor(rows.ids, rows.actions).logprobs[rows.actions].tolist()
        return Reply(ids, [*begun.logprobs, *logprobs[len(begun.ids) :]], ids[-1] in self._script.ends, [])

    def _peak(self, what: str, **more: float) -> None:
        """Writes a line with the peak memory in GiB since the last such line."""
        if torch.cuda.is_available():
            known = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
            memory = {name: count / 2**30 for name, count in known.items()}
            torch.cuda.reset_peak_memory_stats()
        else:
            memory = {"resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}
        with self._notes.open("a") as file:
            file.write(json.dumps({"what": what, "time": time.time(), **memory, **more}) + "\n")


def train(options: argparse.Namespace) -> None:
    """The training run, in the process that gets killed."""
    some = islice(subjects(1, options.target), 200)
    subject = next(one for one in some if one.answers[0].schedule.form == "pointwise")
    task = of_graph(subject.graph, options.target)
    real: Any = vars(policy_model)["engine"]

    def driven(actor: Actor, ends: Sequence[int], **more: Any) -> Engine:
        script = Script(options.base, subject, options.target, options.context)
        return Driven(real(actor, ends, **more), actor, script, options.out / "costs.jsonl")

    vars(policy_model)["engine"] = driven
    stage = StageOptions(
        stage="ppo_agent",
        base=options.base,
        out=options.out / "run",
        target=options.target,
        iterations=options.updates,
        episodes=options.episodes,
        evaluate_every=options.updates + 1,
        play=PlayOptions(scheme="correctness", turns=200, reply=512, context=options.context, profile="full"),
        update=UpdateOptions(rate=1e-5, head_rate=2e-5, steps=1, warmup=1, budget=options.context),
        kl=KlControl(0.01),
        model=PolicyModelOptions(lora=16, checkpointing=True),
        engine=EngineOptions("transformers"),
    )
    run(stage, [task])


def watch(options: argparse.Namespace, words: list[str]) -> dict[str, Any]:
    """Starts training, kills it during the update or play after `kill_after` reports, and starts it again; returns a
    summary."""
    began = time.monotonic()
    command = [sys.executable, "-m", "bench.base_model", "--train", *words]
    metrics = RowFile(options.out / "run" / "metrics.jsonl")
    first = subprocess.Popen(command)
    while first.poll() is None and len(metrics.read()) <= options.kill_after:
        time.sleep(0.2)
    time.sleep(options.kill_seconds)
    if first.poll() is not None:
        raise SystemExit(f"it ended by itself, with {first.returncode}")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    known, killed = len(metrics.read()), time.monotonic()
    again = subprocess.Popen(command)
    while again.poll() is None:
        if time.monotonic() - began > options.seconds:
            ask(options.out / "run", TrainingCommand.stop)
        time.sleep(0.2)
    return summary(options, known, again.returncode, killed - began, time.monotonic() - began)


def summary(options: argparse.Namespace, known: int, code: int, killed: float, seconds: float) -> dict[str, Any]:
    run = options.out / "run"
    lines = [one for one in RowFile(run / "metrics.jsonl").read() if one["step"]]
    costs = RowFile(options.out / "costs.jsonl").read()
    plays, steps = [one for one in costs if one["what"] == "play"], [one["step"] for one in lines]
    newest = max(run.glob("checkpoint-??????"))

    def means(**columns: str) -> Row:
        found = {name: [float(one[column]) for one in lines if column in one] for name, column in columns.items()}
        return {name: round(sum(values) / max(len(values), 1), 4) for name, values in found.items()}

    found = {(one["what"], name) for one in costs for name in ("allocated", "reserved", "resident") if name in one}
    peaks = {
        f"{what}_{name}_gib": round(max(one[name] for one in costs if one["what"] == what), 2)
        for what, name in sorted(found)
        if what != "start"
    }
    return {
        "exit_code": code,
        "updates": len(set(steps)),
        "steps_in_order": steps == sorted(set(steps)),
        "killed_after_lines": known,
        "killed_at_s": round(killed, 1),
        "seconds": round(seconds, 1),
        **peaks,
        "longest_episode_tokens": max((one["episode_tokens"] for one in lines), default=0),
        **means(turns="episode_turns", pass_rate="pass_rate", trained_tokens_per_s="tokens_per_s"),
        **means(update_seconds="update_seconds"),
        "sampled_tokens_per_s": _rate(plays, "sampled", "sample_seconds"),
        "prompt_tokens_per_s_with_sampling": _rate(plays, "prompts", "sample_seconds"),
        **means(**{name: name for name in ("judge_seconds", "kl_sampler", "ratio_left_out_share")}),
        "checkpoint_mib": round(sum(file.stat().st_size for file in newest.rglob("*")) / 2**20, 1),
    }


def _rate(lines: Sequence[dict[str, Any]], what: str, seconds: str) -> float:
    total, spent = (sum(float(one[name]) for one in lines) for name in (what, seconds))
    return round(total / max(spent, 1e-9), 1)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.base_model", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base", type=Path, required=True, help="where the model is made, unless it is there")
    parser.add_argument("--size", choices=SIZES, default="7b")
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--context", type=int, default=32768)
    parser.add_argument("--kill-after", type=int, default=8, help="updates")
    parser.add_argument("--kill-seconds", type=float, default=3.0, help="behind that update")
    parser.add_argument("--seconds", type=float, default=380.0, help="then it stops with a checkpoint")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.train:
        train(options)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    if not options.base.is_dir():
        make_base(options.base, options.size, torch.device(options.target))
        torch.cuda.empty_cache()
    made = round(time.monotonic() - began, 1)
    summary = {"made_seconds": made, **watch(options, words)}
    (options.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    sys.stdout.write(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
