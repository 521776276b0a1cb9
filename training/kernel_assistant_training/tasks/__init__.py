"""Makes tasks from installed packages. Candidates consist of one operator that was found in a package ("crawled") or of
several; the filter runs them, and the generator's kernels for the tasks that remain are measured ("labels"). See
docs/tasks.md."""
