"""The kinds of jobs, and the steps of a job: search, checks, line times, free wins, timing of the edited file."""
