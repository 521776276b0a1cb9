"""Session hosts that a test starts itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from kernel_assistant.config import Settings
from kernel_assistant.session.start import find_host


def start_host(program: Path, settings: Settings, **environment: str) -> subprocess.Popen[bytes]:
    """The process of `program`, after it has begun to listen at the address of `settings`. If it fails, the test shows
    its errors.
    """
    child = subprocess.Popen([sys.executable, str(program)], env={**os.environ, **environment})
    while (stream := find_host(settings)) is None:
        assert child.poll() is None, f"{program.name} ended with {child.returncode}"
        time.sleep(0.01)
    stream.close()
    return child
