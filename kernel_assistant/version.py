"""The version of this package, in a module that the package's own modules can import."""

__version__ = "0.1.0"
