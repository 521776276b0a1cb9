"""Starts a free-form runner or a build inside the sandbox: `PYTHON -I boot.py run FD` or `PYTHON -I boot.py build`."""

import importlib.util
import os
import sys

NAME = "kernel_assistant_worker"


def load_worker_package() -> None:
    """Register the parent folder as the package that relative imports refer to."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = importlib.util.spec_from_file_location(
        NAME, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    load_worker_package()
    if sys.argv[1] == "build":
        from kernel_assistant_worker.freeform.build import main as build

        sys.exit(build())
    from kernel_assistant_worker.freeform.serve import main as serve

    sys.exit(serve(int(sys.argv[2])))
