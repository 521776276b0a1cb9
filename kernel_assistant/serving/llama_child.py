"""llama.cpp's server in a process of its own: started as a file, ends on SIGTERM or SIGINT.

Native code may crash; then this process is gone and nothing else. Needs xllamacpp and the standard library.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading

#: Of llama.cpp. What it says of each request would fill the disk.
_WARNINGS = 2


def main() -> int:
    """Serve until told to end. 1 where the model cannot be loaded; llama.cpp has said why on stderr."""
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
        # Its log is written by a thread, whose last lines may be lost.
        what = f"loading model {options.model}" if _is_free(options.host, options.port) else "address already in use"
        print(f"error {what}: {error}", file=sys.stderr)  # noqa: T201 - its log
        return 1
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # After the server, which has set its own.
        signal.signal(number, lambda *_: done.set())
    print(f"listening on {server.listening_address}", flush=True)  # noqa: T201
    done.wait()
    # Without its destructor, which waits for requests that still run.
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
