"""Makes tasks from installed packages: they are crawled or composed, filtered by running them, and labelled. See
docs/tasks.md."""
