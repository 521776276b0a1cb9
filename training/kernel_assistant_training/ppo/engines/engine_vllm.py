"""An engine that gets replies from a vLLM server, which this process starts. Prompts are sent as token ids; replies are
token ids with log-probabilities.

The server ends with this process. Loading adapters, reloading weights and sleeping use vLLM's development endpoints, so
the server listens on the local interface only. Some endpoints need no key: other users of the machine could call them
too.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openai

from kernel_assistant.config import resolve
from kernel_assistant.policy.chat_tokens import WORDS_OF_VLLM
from kernel_assistant.serving import vllm
from kernel_assistant.serving.engine import EngineProcess, EngineSpec, free_port, new_key
from kernel_assistant.serving.errors import EngineError
from kernel_assistant.serving.request import ServeRequest
from kernel_assistant_training.decode import GenerationRequest, Reply
from kernel_assistant_training.ppo.engines.engine_options import EngineOptions
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.base import ADAPTER
from kernel_assistant_training.ppo.run_folder import copy_around

HOST, NAME = "127.0.0.1", "policy"
#: Maximum adapter ranks that vLLM accepts.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_OURS = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
_CHECK_EVERY, _ANSWER_SECONDS = 0.25, 3600.0


class VllmEngine:
    """An `Engine` that uses a vLLM server. It writes the files that the server loads to the folder `serving`; `folder`
    has the model's vocabulary and configuration."""

    def __init__(
        self,
        actor: Actor,
        ends: Sequence[int],
        *,
        rows: int,
        context: int,
        options: EngineOptions,
        folder: Path,
        serving: Path,
    ) -> None:
        """Starts the server and waits until it is ready. Raises MissingError if vLLM is not installed, and EngineError
        if the server does not start.
        """
        self._ends, self._rows, self._cuda = list(ends), rows, actor.device.type == "cuda"
        self._adapters, self._around, self._folder = actor.adapters is not None, folder, serving
        self._version, self._stale, self._asleep = 0, False, False
        shutil.rmtree(serving, ignore_errors=True)
        serving.mkdir(parents=True)
        self._write(actor)
        self._process = EngineProcess(self._spec(actor, context, options))
        self._await_health()
        if self._adapters:
            self._load_adapter()

    def load(self, actor: Actor) -> None:
        """Writes the weights to disk. The server, which may be asleep, reads them before the next request."""
        self._write(actor)
        self._stale = True

    def rest(self) -> None:
        """Puts the server to sleep if it uses a GPU. With adapters, the base's weights move to host memory; otherwise
        the weights are dropped."""
        if self._cuda and not self._asleep:
            self._post("/reset_prefix_cache")
            self._post(f"/sleep?level={1 if self._adapters else 2}")
            self._asleep = True

    def close(self) -> None:
        self._process.stop()

    def decode(self, asked: Sequence[GenerationRequest]) -> list[Reply]:
        """Returns the replies to the requests, in the same order. Raises EngineError if the server has ended or its
        answer is invalid."""
        self._wake()
        try:
            return asyncio.run(self._all(asked))
        except openai.OpenAIError as error:
            raise self._why(error) from error

    async def _all(self, asked: Sequence[GenerationRequest]) -> list[Reply]:
        turns = asyncio.Semaphore(self._rows)
        async with openai.AsyncOpenAI(
            base_url=self._process.spec.url, api_key=self._process.spec.key, timeout=_ANSWER_SECONDS, max_retries=0
        ) as client:

            async def one(prompt: GenerationRequest) -> Reply:
                async with turns:
                    return await self._one(client, prompt)

            return list(await asyncio.gather(*(one(prompt) for prompt in asked)))

    async def _one(self, client: openai.AsyncOpenAI, asked: GenerationRequest) -> Reply:
        answer = await client.completions.create(
            model=self._name() if self._adapters else NAME,
            prompt=list(asked.prompt),
            max_tokens=asked.most,
            temperature=asked.temperature,
            top_p=1.0,
            seed=asked.seed,
            logprobs=0,
            extra_body={**WORDS_OF_VLLM, "stop_token_ids": self._ends},
        )
        choice: Any = answer.choices[0]
        ids, logprobs = list(choice.token_ids or ()), list(choice.logprobs.token_logprobs if choice.logprobs else ())
        if not ids or len(ids) != len(logprobs):
            raise EngineError("the server does not say which tokens it sampled", f"see {self._process.spec.log}")
        return Reply(ids, [float(number) for number in logprobs], ids[-1] in self._ends, [])

    def _wake(self) -> None:
        """Wakes the server with the newest weights. If sleeping dropped the weights, the server reads them again even
        if they have not changed. Raises the cause if the server has ended, and EngineError if it refuses a request."""
        if self._process.exit_code() is not None:
            raise self._process.cause()[0]
        read = not self._adapters and (self._stale or self._asleep)
        if self._asleep:
            self._post("/wake_up?tags=weights")
        if read:
            self._post("/collective_rpc", {"method": "reload_weights"})
        if self._asleep:
            self._post("/wake_up?tags=kv_cache")
        if read:
            self._post("/reset_prefix_cache")
        if self._adapters and self._stale:
            self._load_adapter()
        self._stale = self._asleep = False

    def _load_adapter(self) -> None:
        """Loads the adapters under a new name, so that cached prefixes that were computed with the old adapters are not
        used."""
        path = str(self._folder / self._name() / ADAPTER)
        self._post("/v1/load_lora_adapter", {"lora_name": self._name(), "lora_path": path})
        old = self._folder / f"{NAME}-{self._version - 1}"
        if old.is_dir():
            self._post("/v1/unload_lora_adapter", {"lora_name": old.name})
            shutil.rmtree(old)

    def _name(self) -> str:
        return f"{NAME}-{self._version}"

    def _write(self, actor: Actor) -> None:
        """Writes the weights to disk. Adapters get a new folder; full weights replace the previous ones."""
        self._version += 1
        if self._adapters:
            assert actor.adapters is not None
            (self._folder / self._name()).mkdir()
            actor.adapters.save(self._folder / self._name())
            return
        model = self._folder / "model"
        partial = self._folder / "model.partial"
        partial.mkdir()
        copy_around(self._around, partial)
        actor.save_weights(partial)
        shutil.rmtree(model, ignore_errors=True)
        partial.rename(model)

    def _spec(self, actor: Actor, context: int, options: EngineOptions) -> EngineSpec:
        settings = resolve()[0]
        words: list[str] = []
        source = self._folder / "model"
        if actor.adapters is not None:
            source = actor.adapters.base
            rank = next(one for one in _RANKS if one >= actor.adapters.rank)
            words += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", "1", "--max-cpu-loras", "2"]
        words += ["--enable-sleep-mode", "--dtype", "bfloat16"] if self._cuda else ["--dtype", "float32"]
        port, key = free_port(HOST), new_key()
        request = ServeRequest(
            host=HOST,
            port=port,
            gpu_memory_share=options.share or 0.0,
            context=context,
            engine_arguments=(*words, *options.arguments),
        )
        return EngineSpec(
            engine="vllm",
            command=vllm.command(
                vllm.find_vllm(settings), str(source), request, name=NAME, derived=False, gpu=self._cuda
            ),
            environment={**vllm.environment(settings, key, gpu=self._cuda), **_OURS},
            host=HOST,
            port=port,
            key=key,
            model=NAME,
            source=str(source),
            log=self._folder.parent / "vllm.log",
            ready_seconds=vllm.READY_SECONDS,
        )

    def _await_health(self) -> None:
        deadline = time.monotonic() + self._process.spec.ready_seconds
        while not self._process.healthy():
            if self._process.exit_code() is not None:
                raise self._process.cause()[0]
            if time.monotonic() > deadline:
                self._process.stop()
                raise EngineError("vllm was not ready in time", f"see {self._process.spec.log}")
            time.sleep(_CHECK_EVERY)

    def _post(self, path: str, body: dict[str, Any] | None = None) -> None:
        spec = self._process.spec
        request = urllib.request.Request(
            f"{spec.url.removesuffix('/v1')}{path}",
            data=json.dumps(body or {}).encode(),
            headers={"Authorization": f"Bearer {spec.key}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS):
                pass
        except urllib.error.HTTPError as error:
            message = error.read().decode(errors="replace").strip()[:200]
            raise EngineError(f"vllm refused {path}: {error.code} {message}", f"see {spec.log}") from error
        except OSError as error:
            raise self._why(error) from error

    def _why(self, error: Exception) -> EngineError:
        if self._process.exit_code() is not None:
            cause = self._process.cause()[0]
            return EngineError(cause.cause, cause.next_step)
        return EngineError(f"vllm does not answer: {error}", f"see {self._process.spec.log}")
