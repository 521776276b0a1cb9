"""The language server of kernel-assistant. It lets editors start jobs of the session host."""
