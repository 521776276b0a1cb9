"""A Model Context Protocol server over the session: what coding agents get. See docs/mcp.md."""
