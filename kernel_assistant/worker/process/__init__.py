"""The worker as a process: forks, threads and cores, memory, errors of the user's module, how it ends."""
