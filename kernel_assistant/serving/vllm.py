"""The command that starts vLLM, and vLLM's own virtual environment. This program never imports vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from kernel_assistant.config import Settings
from kernel_assistant.errors import MissingError
from kernel_assistant.serving.request import ServeRequest

#: The requirement that `serve --install` installs.
REQUIREMENT = "vllm>=0.26"
#: Share of the GPU's memory for weights and cache; the rest is for candidates and their baselines.
DEFAULT_SHARE = 0.5
READY_SECONDS = 1800.0
_OURS = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}
#: Variables without a GPU: GiB of cache. Other settings of vLLM's CPU build come from the user's environment.
_ON_CPU = {"VLLM_CPU_KVCACHE_SPACE": "1"}
_STRUCTURED = {"backend": "xgrammar", "disable_any_whitespace": True}
#: Marks in a model's chat template, and the arguments that select vLLM's parsers for the model's tool calls. The first
#: row whose marks are all found is used. The marks of some families are special tokens, which vLLM removes from the
#: text, so that only its own parser sees them. Calls and reasoning that vLLM leaves in the text are read by our own
#: reader (`agent/replies/`).
FAMILIES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("<|channel|>",), ("--tool-call-parser", "openai", "--reasoning-parser", "openai_gptoss")),
    (("<arg_key>",), ("--tool-call-parser", "glm45")),
    (("<seed:tool_call>",), ("--tool-call-parser", "seed_oss")),
    (("<minimax:tool_call>",), ("--tool-call-parser", "minimax_m2")),
    (("<tool_call>", "<function=", "<parameter="), ("--tool-call-parser", "qwen3_coder")),
    (("<|tool_calls_section_begin|>",), ("--tool-call-parser", "kimi_k2")),
    (("<｜tool▁calls▁begin｜>", "```json"), ("--tool-call-parser", "deepseek_v3")),
    (("<｜tool▁calls▁begin｜>",), ("--tool-call-parser", "deepseek_v31")),
    (("[TOOL_CALLS]",), ("--tool-call-parser", "mistral")),
    (("<|tool_call|>",), ("--tool-call-parser", "granite")),
    (("<tool_call>",), ("--tool-call-parser", "hermes")),
    (("<|start_header_id|>", '"parameters"'), ("--tool-call-parser", "llama3_json")),
)
#: For a template without these marks, or if there is no template: this parser leaves text in other forms unchanged.
OTHERS = ("--tool-call-parser", "hermes")


def find_vllm(settings: Settings) -> Path:
    """Returns the interpreter with vLLM: `vllm_python`, or that of vLLM's own environment. Raises MissingError."""
    if settings.vllm_python:
        python = Path(settings.vllm_python).expanduser()
        if not _has_vllm(python):
            raise MissingError(
                f"{settings.vllm_python} has no vllm", "install it there, or unset vllm_python and serve --install"
            )
        return python
    python = _environment(settings) / "bin" / "python"
    if not _has_vllm(python):
        raise MissingError("vllm is not installed", "kernel-assistant serve --install (gigabytes), or set vllm_python")
    return python


def install(settings: Settings, say: Callable[[str], None]) -> Path:
    """Creates vLLM's virtual environment and installs vLLM into it, unless that is done; returns its interpreter. `say`
    gets lines about the progress. Raises MissingError if the installation fails."""
    folder = _environment(settings)
    python = folder / "bin" / "python"
    if _has_vllm(python):
        return python
    say(f"making {folder} with Python {sys.version.split()[0]}")
    venv.create(folder, with_pip=True, clear=True)
    say(f"installing {REQUIREMENT}: several gigabytes, minutes")
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", REQUIREMENT]
    done = subprocess.run(command, env=_without_ours(), check=False)
    if done.returncode or not _has_vllm(python):
        raise MissingError(
            f"pip could not install {REQUIREMENT} into {folder}", "its message is above; or set vllm_python"
        )
    return python


def command(python: Path, model: str, request: ServeRequest, *, name: str, derived: bool, gpu: bool) -> tuple[str, ...]:
    """Returns the command line of the vLLM server. `derived` says that the folder `model` was made from a GGUF file, so
    its weights are float32."""
    words = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", name]
    words += ["--host", request.host, "--port", str(request.port)]
    words += ["--enable-prefix-caching", "--enable-auto-tool-choice", *parsers(template_of(model))]
    words += ["--structured-outputs-config", json.dumps(_STRUCTURED, separators=(",", ":"))]
    if gpu:
        words += ["--gpu-memory-utilization", str(request.gpu_memory_share or DEFAULT_SHARE)]
    if derived:
        words += ["--dtype", "bfloat16"]
    if request.context:
        words += ["--max-model-len", str(request.context)]
    return (*words, *request.engine_arguments)


def environment(settings: Settings, key: str, *, gpu: bool) -> dict[str, str]:
    """Returns the server's environment variables. They include the key, because other users can read command lines."""
    inherited = dict(os.environ) if settings.vllm_python else _without_ours()
    return {**({} if gpu else _ON_CPU), **inherited, **_OURS, "VLLM_API_KEY": key}


def _environment(settings: Settings) -> Path:
    return settings.state_dir / "serving" / "vllm"


def _has_vllm(python: Path) -> bool:
    """Whether an interpreter has vLLM installed. vLLM is not imported for that, because importing it takes ten
    seconds."""
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"
    try:
        return not subprocess.run([str(python), "-c", probe], capture_output=True, check=False).returncode
    except OSError:
        return False


def _without_ours() -> dict[str, str]:
    """Returns the environment without variables that affect our own interpreter."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def parsers(template: str) -> tuple[str, ...]:
    """Returns the command-line arguments with which vLLM parses the replies of a model with this chat template."""
    return next((words for marks, words in FAMILIES if all(mark in template for mark in marks)), OTHERS)


def template_of(model: str) -> str:
    """Returns the chat template of a Hugging Face folder; "" if it has none, or if `model` is no folder."""
    folder = Path(model)
    file = folder / "chat_template.jinja"
    try:
        if file.is_file():
            return file.read_text(encoding="utf-8")
        template = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return ""
    if isinstance(template, list):
        # Several by name; the one for tools is what a request with tools is rendered with.
        named = {str(each.get("name")): each.get("template") for each in template if isinstance(each, dict)}
        template = named.get("tool_use") or named.get("default")
    return template if isinstance(template, str) else ""
