"""How the report calls methods: by the titles of the catalog, or by the name in the record where it no longer knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from snapfm.project.peers.catalog import METHODS


@dataclass(frozen=True)
class About:
    """What a catalog says of a method."""

    title: str
    about: str = ""
    published: str | None = None


def catalog() -> Mapping[str, About]:
    """Give what this installation knows of its methods."""
    return {name: About(method.title, method.about, method.published) for name, method in METHODS.items()}


def about(method: str) -> About:
    """Describe a method; records outlive catalogs, so one that is not known is no mistake."""
    return catalog().get(method, About(method))


def title(method: str) -> str:
    """Give a method's title."""
    return about(method).title
