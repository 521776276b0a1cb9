"""Time by line of a module's forward."""
