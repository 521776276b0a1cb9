"""The jobs that an editor follows, and how they are shown. This package uses neither server nor client."""
