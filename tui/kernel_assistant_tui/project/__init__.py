"""The classes of the project, their states, and changes to its files."""
