"""`python -m kernel_assistant` is the command line."""

from __future__ import annotations

import sys

from kernel_assistant.cli import main

if __name__ == "__main__":
    sys.exit(main())
