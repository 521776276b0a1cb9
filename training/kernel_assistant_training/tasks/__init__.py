"""Tasks from installed packages: crawled, composed, filtered by running them, labelled. See docs/tasks.md."""
