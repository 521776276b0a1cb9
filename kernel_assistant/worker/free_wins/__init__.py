"""Speed-ups that need no kernel: docs/free_wins.md."""
