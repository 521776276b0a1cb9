"""Makes a `KernelTask` from a file without importing it: the user's code runs only in a worker."""

from __future__ import annotations

from kernel_assistant.source.build import build_task
from kernel_assistant.source.find import ModuleClass, find_modules
from kernel_assistant.source.interpreter import Interpreter, find_interpreter

__all__ = ["Interpreter", "ModuleClass", "build_task", "find_interpreter", "find_modules"]
