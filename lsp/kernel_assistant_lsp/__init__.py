"""Language server front end of kernel-assistant. Editors start jobs of the session host with it."""
