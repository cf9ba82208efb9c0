"""A reader of pages: what a browser would load or act on, all ids, the text, and whether every tag is closed."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "img", "br"}
REFERENCES = ("src", "href", "xlink:href", "srcset", "action", "data", "poster")


class Reader(HTMLParser):
    """Reads a whole page; `open` is empty if every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [value or "" for name, value in attrs if name in REFERENCES]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
