"""The tools that a model can call in an episode: one record of arguments for each tool."""

from __future__ import annotations

from kernel_assistant.agent.tools import files, shell, task
from kernel_assistant.agent.tools.base import Tool, ToolContext, ToolError

ALL: dict[str, Tool] = {tool.name: tool for tool in (*files.TOOLS, *shell.TOOLS, *task.TOOLS)}

__all__ = ["ALL", "Tool", "ToolContext", "ToolError"]
