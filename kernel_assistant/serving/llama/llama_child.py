"""llama.cpp's server in its own process: started as a file, ends on SIGTERM or SIGINT.

If native code crashes, only this process ends. Needs xllamacpp and the standard library.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import socket
import sys

#: llama.cpp's log level for warnings. A log of every request would fill the disk.
_WARNINGS = 2


def main() -> int:
    """Serves until a signal. Returns 1 if the model cannot be loaded; llama.cpp prints the reason to stderr."""
    options = _options()
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {options.name}
    params.hostnames = [options.host]
    params.port = options.port
    params.api_keys = [os.environ["LLAMA_API_KEY"]]
    params.n_parallel = options.slots
    params.n_ctx = options.context * options.slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.ui = False
    params.endpoint_metrics = True
    params.verbosity = _WARNINGS
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        # llama.cpp writes its log in a thread, whose last lines may be lost.
        what = f"loading model {options.model}" if _is_free(options.host, options.port) else "address already in use"
        print(f"error {what}: {error}", file=sys.stderr)  # noqa: T201 - its log
        return 1
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Set after the server's start, because the server sets its own handlers.
        signal.signal(number, lambda received, frame: done.put(received))
    print(f"listening on {server.listening_address}", flush=True)  # noqa: T201
    done.get()
    # Skips the server's destructor, which would wait for running requests.
    os._exit(0)


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        return False
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--name", required=True)
    parser.add_argument("--host", required=True)
    for number in ("--port", "--context", "--slots", "--threads"):
        parser.add_argument(number, type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
