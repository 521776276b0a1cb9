"""The quick and the full tier: how a candidate is timed and checked in each."""
