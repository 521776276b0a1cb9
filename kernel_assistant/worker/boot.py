"""Starts the worker under the user's interpreter: `PYTHON -P boot.py`.

Loads this folder as the package `kernel_assistant_worker`, so that nothing beside it gets on `sys.path` and no module
of the user's project can shadow ours.
"""

import gc
import importlib.util
import os
import sys


def load(folder: str, name: str) -> None:
    """Imports the Python package in `folder` under the name `name`, without a change of `sys.path`."""
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def start() -> None:
    """Sets the garbage collector's threshold and registers the worker's package, before any module of the worker is
    imported."""
    # The first export creates hundreds of thousands of objects that stay alive: scanning them again and again took a
    # third of its time.
    gc.set_threshold(100_000)
    load(os.path.dirname(os.path.abspath(__file__)), "kernel_assistant_worker")


if __name__ == "__main__":
    start()
    from kernel_assistant_worker.main import main

    main()
