"""Starts a runner inside the sandbox: `PYTHON -I -S boot.py FD`, FD being the socket to the judge."""

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
    from kernel_assistant_runner.serve import main

    sys.exit(main(int(sys.argv[1])))
