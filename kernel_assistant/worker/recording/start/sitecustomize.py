"""First on `PYTHONPATH` of a scanned program: begins the recording, then runs the program's own sitecustomize, which
this file hides.

Python imports this file before the program; it restores path and environment for the program.
"""

import contextlib
import importlib.util
import os
import sys

_FOLDER = "KERNEL_ASSISTANT_SCAN"
_CHILDREN = "KERNEL_ASSISTANT_SCAN_CHILDREN"
_OUTERMOST = "KERNEL_ASSISTANT_SCAN_OUTERMOST"
_PATH = "PYTHONPATH"


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    folder, outermost = os.environ.get(_FOLDER, ""), bool(os.environ.get(_OUTERMOST))
    if not os.environ.get(_CHILDREN):
        entries = [entry for entry in os.environ.get(_PATH, "").split(os.pathsep) if entry != here]
        for name in (_FOLDER, _CHILDREN, _OUTERMOST):
            os.environ.pop(name, None)
        if any(entries):
            os.environ[_PATH] = os.pathsep.join(entries)
        else:
            os.environ.pop(_PATH, None)
    if not folder:
        return
    package = os.path.dirname(here)
    name = "kernel_assistant_recording"
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    from kernel_assistant_recording.boot import begin

    begin(folder, outermost=outermost)


def _run_hidden() -> None:
    """Imports the sitecustomize that this file hides; if there is none, this module stays loaded."""
    ours = sys.modules.pop(__name__, None)
    try:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(__name__)
    finally:
        if ours is not None:
            sys.modules.setdefault(__name__, ours)


if __name__ == "sitecustomize":
    _begin()
    _run_hidden()
