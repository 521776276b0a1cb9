"""What a model can do in an episode, one tool per record of arguments."""

from __future__ import annotations

from kernel_assistant.agent.tools import files, shell, task
from kernel_assistant.agent.tools.base import Tool, ToolError, World

ALL: dict[str, Tool] = {tool.name: tool for tool in (*files.TOOLS, *shell.TOOLS, *task.TOOLS)}

__all__ = ["ALL", "Tool", "ToolError", "World"]
