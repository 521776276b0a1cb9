"""The classes of the project, their states, and changes of its files."""
