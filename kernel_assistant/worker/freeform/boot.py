"""Starts a free-form runner or a build inside the sandbox: `PYTHON -I boot.py run FD` or `PYTHON -I boot.py build`."""

import os
import runpy
import sys

if __name__ == "__main__":
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    runpy.run_path(os.path.join(folder, "boot.py"))["load"](folder, "kernel_assistant_worker")
    if sys.argv[1] == "build":
        from kernel_assistant_worker.freeform.build import main as build

        sys.exit(build())
    from kernel_assistant_worker.freeform.serve import main as serve

    sys.exit(serve(int(sys.argv[2])))
