"""Turns a module into an OpGraph: exports it by `torch.export`, and rewrites and reads the exported graph."""
