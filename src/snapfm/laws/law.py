"""Law: what all kinds of law are, for annotations. Imports nothing."""

from __future__ import annotations


class Law:
    """A physical law on fields: an Equality, an Inequality, Bounds, or an Oracle.

    Lists that mix them are lists of laws, also for a type checker: `laws: list[snapfm.Law] = [...]`, or without the annotation.
    """

    name: str
