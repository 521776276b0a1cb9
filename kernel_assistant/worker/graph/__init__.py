"""A module as an OpGraph: export by `torch.export`, and what rewrites or reads an exported graph."""
