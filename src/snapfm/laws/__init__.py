"""WHAT must hold: the kinds of law, and ready-made ones for common physics."""

from snapfm.laws.base import Bounds, Equality, Inequality, Law, Params

__all__ = ["Bounds", "Equality", "Inequality", "Law", "Params"]
