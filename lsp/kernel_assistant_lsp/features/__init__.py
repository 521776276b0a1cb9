"""One file for each feature: functions of a snapshot and records, none of which waits for other processes."""
