"""Makes tasks from installed packages: operators are crawled or composed, the tasks are filtered by running them, and
then labelled. See docs/tasks.md."""
