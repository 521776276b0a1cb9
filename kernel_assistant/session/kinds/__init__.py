"""The kinds of jobs, and the steps of a job: search for kernels, checks, times of source lines, free wins (speed-ups
that need no kernel), and timing of the edited file."""
