"""Links and pictures of README and docs lead to files and headings that exist; needs nothing but the sources."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
SNIPPET = re.compile(r'^ *--8<-- "([^":]+)(?::([\w-]+))?"$', re.MULTILINE)


def prose(page: Path) -> str:
    """Return the text of a page without code."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^()\s]+(?:\([^()\s]*\))?[^()\s]*)\)", prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the site and GitHub both make them."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL), re.M)
    return {slug(head) for head in heads}


def slug(heading: str) -> str:
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def made_by_the_gallery(target: Path) -> bool:
    """Whether `make docs` draws this picture."""
    script = ROOT / "examples" / "gallery" / f"{target.stem}.py"
    return target.parent == DOCS / "gallery" and target.suffix == ".png" and script.is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path):
    for link in links(page):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists() or made_by_the_gallery(target), f"{page.name} links to {link}"
        if anchor:
            assert anchor in anchors(target), (
                f"{page.name} links to {link}; {target.name} has {sorted(anchors(target))}"
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pictures_are_not_fetched_from_elsewhere(page: Path):
    assert not re.findall(r"!\[[^\]]*\]\(https?://|<img[^>]+src=.https?://", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [page for page in PAGES if SNIPPET.search(page.read_text(encoding="utf-8"))])
def test_included_files_exist(page: Path):
    for file, section in SNIPPET.findall(page.read_text(encoding="utf-8")):
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not section or (f"--8<-- [start:{section}]" in text and f"--8<-- [end:{section}]" in text)


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
