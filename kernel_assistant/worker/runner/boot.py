"""Starts a runner inside the sandbox: `PYTHON -I -S boot.py FD`, where FD is the descriptor of the socket to the judge.
With a folder instead of FD, runs one call of a plan for a profiler (`counted.py`)."""

import importlib.util
import os
import sys

if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(
        "kernel_assistant_runner", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["kernel_assistant_runner"] = package
    spec.loader.exec_module(package)
    if sys.argv[1].isdecimal():
        from kernel_assistant_runner.serve import main

        # Without the interpreter's cleanup, which with torch imported takes longer than the judge waits.
        os._exit(main(int(sys.argv[1])))
    from kernel_assistant_runner.counted import main as counted

    sys.exit(counted(sys.argv[1]))
