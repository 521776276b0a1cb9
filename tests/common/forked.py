"""Programs that import torch, as forks of one process that has it imported: 0.1 s of processor time instead of three.

Each program has an environment, arguments, folder and modules of its own. What torch reads from the environment while
it is imported is that of the first program.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

#: Reads a program's JSON from each line of its input, and writes the exit code of its fork.
SERVER = """
import atexit, gc, json, os, sys, traceback, types
import torch, torch.testing
gc.freeze()


def play(asked):
    os.chdir(asked["folder"])
    for number, name in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = open(0)
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.path[0] = ""
    sys.path[1:1] = [one for one in asked["env"].get("PYTHONPATH", "").split(":") if one]
    sys.argv = ["-c", *asked["arguments"]]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    code = 0
    try:
        exec(compile(asked["code"], "<string>", "exec"), main.__dict__)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not isinstance(end.code, (int, type(None))):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


for line in sys.stdin:
    child = os.fork()
    if not child:
        play(json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

_turn = threading.Lock()


@lru_cache(maxsize=1)
def _server() -> subprocess.Popen[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "KERNEL_ASSISTANT_"))}
    process = subprocess.Popen(
        (sys.executable, "-c", SERVER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean, cwd="/"
    )
    atexit.register(process.kill)
    return process


def run(code: str, folder: Path, arguments: Sequence[str], env: dict[str, str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `python -c code`."""
    with tempfile.TemporaryDirectory(prefix="ka-") as own, _turn:
        out, err = Path(own, "out"), Path(own, "err")
        asked = {"code": code, "folder": str(folder), "arguments": list(map(str, arguments)), "env": env}
        server = _server()
        assert server.stdin is not None and server.stdout is not None
        print(json.dumps({**asked, "out": str(out), "err": str(err)}), file=server.stdin, flush=True)
        answer = server.stdout.readline()
        assert answer, "the process that programs are forked from has ended"
        return int(answer), out.read_text(), err.read_text()
