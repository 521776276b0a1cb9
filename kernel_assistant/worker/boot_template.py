"""Starts a template process as boot.py starts a worker: `PYTHON boot_template.py SOCKET SECONDS`. SOCKET is a
descriptor; the template ends after SECONDS without a worker."""

import os
import runpy
import sys

if __name__ == "__main__":
    runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "boot.py"))["start"]()
    from kernel_assistant_worker.template import main

    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
