"""The documentation site builds without a warning, its links lead somewhere, and no page loads anything from elsewhere."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

pytest.importorskip("material", reason="the site needs snapfm[docs] (make docs), which is not installed")
pytest.importorskip("mkdocstrings_handlers", reason="the site needs snapfm[docs] (make docs), which is not installed")

ROOT = Path(__file__).parents[2]
# 1 × 1, transparent: stands for the pictures, which tests/docs/test_gallery.py draws.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c02"
    "0000000b4944415478da6364600000000600023081d02f0000000049454e44ae426082"
)


class Page(HTMLParser):
    """The links and anchors of a page, and what a browser loads to show it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(found.get("href", ""))
        elif "src" in found:
            self.loads.append(found["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    docs = shutil.copytree(ROOT / "docs", folder / "docs")
    for script in (ROOT / "examples" / "gallery").glob("[a-z]*.py"):
        (docs / "gallery").mkdir(exist_ok=True)
        (docs / "gallery" / f"{script.stem}.png").write_bytes(PIXEL)
    config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(docs), site_dir=str(folder / "site"), strict=True)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_markdown_page_was_built(site: Path):
    docs = ROOT / "docs"
    wanted = {page.relative_to(docs).with_suffix(".html") for page in docs.rglob("*.md")}
    assert wanted <= {page.relative_to(site) for page in site.rglob("*.html")}


def test_no_link_is_broken(site: Path, pages: dict[Path, Page]):
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        for link in [*page.links, *page.loads]:
            if re.match(r"[a-z]+:", link):
                continue
            file, anchor = urldefrag(unquote(link))
            target = (path.parent / file).resolve() if file else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{path.name} links to {link}"
            if anchor and target in pages:
                assert anchor in pages[target].anchors, f"{path.name} links to {link}"


def test_no_page_loads_anything_from_elsewhere(site: Path, pages: dict[Path, Page]):
    for path, page in pages.items():
        assert not [load for load in page.loads if re.match(r"(https?:)?//", load)], path.name
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", style.read_text(encoding="utf-8")), style.name


def test_every_public_name_of_snapfm_is_on_its_page(site: Path):
    import snapfm

    text = (site / "reference" / "snapfm.html").read_text(encoding="utf-8")
    assert [name for name in snapfm.__all__ if f'id="snapfm.{name}"' not in text] == []
