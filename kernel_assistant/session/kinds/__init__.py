"""Jobs by kind, and the steps of a job: search, checks, line times, free wins, the edited file."""
