"""Opening a task: what has to hold of a module so that candidates for it can be judged."""
