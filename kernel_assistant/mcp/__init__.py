"""A Model Context Protocol server for coding agents. It uses the session host and the store. See docs/mcp.md."""
