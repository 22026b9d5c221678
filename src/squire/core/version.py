"""The version of squire."""

__version__ = "0.1.0"
