"""A small package, as people write them: the block imports its norm relatively."""

from __future__ import annotations

from .block import ChannelNormBlock

__all__ = ["ChannelNormBlock"]
