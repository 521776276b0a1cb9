"""The command `kernel-assistant serve`."""

from __future__ import annotations

import json
import sys

import click
import msgspec

from kernel_assistant.cli.common import json_option, settings_for
from kernel_assistant.cli.text import say_warning
from kernel_assistant.config import Settings
from kernel_assistant.errors import EXIT_OK, UsageError
from kernel_assistant.serving.plan import ENGINES
from kernel_assistant.serving.request import ServeRequest
from kernel_assistant.serving.state import ServerState
from kernel_assistant.serving.supervisor import ServerStatus
from kernel_assistant.session.reporting.words import ago


@click.command("serve")
@click.argument("model", default="")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on (default: any free one).")
@click.option("--host", default="127.0.0.1", help="Address to listen on (default: this machine alone).")
@click.option(
    "--gpu-memory-share",
    type=click.FloatRange(0.02, 0.98),
    help="Share of the GPU's memory for vLLM (default: 0.5; the rest is for the kernels under test).",
)
@click.option("--context", type=click.IntRange(min=64), help="Tokens of one conversation.")
@click.option("--engine", type=click.Choice(ENGINES), default="auto", help="Engine that runs the model.")
@click.option(
    "--vllm-argument", "engine_arguments", multiple=True, metavar="WORD", help="Argument that vLLM gets as it is."
)
@click.option("--detach", is_flag=True, help="Server in the background: the command ends when it is ready.")
@click.option("--status", "show_status", is_flag=True, help="Status of the server that runs.")
@click.option("--stop", "stop_it", is_flag=True, help="Shutdown of the server that runs.")
@click.option("--install", is_flag=True, help="Installation of vLLM in an environment of its own (several gigabytes).")
@json_option
def serve_command(
    model: str, show_status: bool, stop_it: bool, install: bool, detach: bool, as_json: bool, **options: object
) -> int:
    """Serve MODEL (default: the one in use) on this machine, for every other command.

    MODEL is a name of `models list`, a GGUF file, a folder or a hub name. Without --detach the server ends with this
    command. The model that comes with the package needs no server: `optimize` runs it by itself.
    """
    settings = settings_for(None)
    if [show_status, stop_it, install, detach].count(True) > 1:
        raise UsageError("--status, --stop, --install and --detach exclude each other", "use one of them")
    if show_status:
        return _status(settings, as_json)
    if stop_it:
        return _stop(settings)
    if install:
        return _install(settings)
    given = {name: value for name, value in options.items() if value is not None}
    _serve(ServeRequest(model=model, **given), settings, detach=detach, as_json=as_json)  # type: ignore[arg-type]
    return EXIT_OK


def _serve(request: ServeRequest, settings: Settings, *, detach: bool, as_json: bool) -> None:
    from kernel_assistant.serving.server import serve, serve_detached

    if request.host not in ("127.0.0.1", "localhost", "::1"):
        say_warning(f"whoever reaches {request.host} and has the key can use the model")
    if detach:
        state = serve_detached(request, settings, _say)
        if as_json:
            print(json.dumps(msgspec.to_builtins(state)), flush=True)
    else:
        serve(request, settings, _say)


def _status(settings: Settings, as_json: bool) -> int:
    from kernel_assistant.serving.state import running

    state = running(settings)
    if as_json:
        print(json.dumps(None if state is None else msgspec.to_builtins(state)))
    elif state is None:
        print("no server runs; kernel-assistant serve MODEL starts one")
    else:
        print(f"{_described(state)}, pid {state.pid}, since {ago(state.started)}, log {state.log}")
    return EXIT_OK


def _stop(settings: Settings) -> int:
    from kernel_assistant.serving.state import stop_running

    print("stopped" if stop_running(settings) else "no server runs")
    return EXIT_OK


def _install(settings: Settings) -> int:
    from kernel_assistant.serving.vllm import install

    python = install(settings, _progress)
    print(f"vllm is in {python}")
    return EXIT_OK


def _say(state: ServerState) -> None:
    _progress(_described(state))
    if state.status is ServerStatus.restarting:
        say_warning(f"{state.cause}; starting again ({state.restarts})")


def _described(state: ServerState) -> str:
    context = f", context of {state.context} tokens" if state.context else ""
    ready = f" at {state.url} (ready after {state.ready_seconds:g} s{context})"
    where = ready if state.status is ServerStatus.ready else ""
    return f"{state.source} on {state.engine}: {state.status.value}{where}"


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
