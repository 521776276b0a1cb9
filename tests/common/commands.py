"""Commands of `kernel-assistant` in the process of the test, where no second one is the point: an interpreter takes a
second to start, and `main` is all that it would run.
"""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from kernel_assistant.cli import main


def run_here(*arguments: object, cwd: Path | None = None, **environment: str) -> CompletedProcess[str]:
    """What `kernel-assistant ARGUMENTS` prints and returns, in `cwd` and with further environment variables."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        if cwd is not None:
            patch.chdir(cwd)
        for name, value in environment.items():
            patch.setenv(name, value)
        code = main([str(one) for one in arguments])
    return CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
