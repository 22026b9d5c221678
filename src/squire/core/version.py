"""The version, in a place that everybody may import."""

__version__ = "0.1.0"
