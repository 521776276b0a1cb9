"""The options of all stages: dataclasses, which click turns into command lines. Does not import torch."""
