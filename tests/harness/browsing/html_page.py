"""What stands in an HTML page."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data

    def every(self, name: str) -> list[str]:
        """The values of an attribute, in order."""
        return [value or "" for each, value in self.attributes if each == name]
