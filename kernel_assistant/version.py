"""The version of this package. It has a module of its own, so that other modules of the package can import it."""

__version__ = "0.1.0"
