"""A Model Context Protocol server for coding agents, on top of the session. See docs/mcp.md."""
