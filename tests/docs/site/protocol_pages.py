"""The pages about the protocol, one for each API, made from the schema while MkDocs builds the site (a hook of `mkdocs.yml`)."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from barnabas.decoder.schema import facts
from barnabas.ui.cli.protocol import api_page
from mkdocs.structure.files import File, Files, InclusionLevel

FOLDER = "protocol"
_INDEX = """\
# The Kafka protocol

Every API of Kafka {oldest} to {newest}, generated from the schema that Barnabas uses for decoding. The page of an API shows the layout of
each version and what it changed, the errors, the releases that serve it, and example frames byte by byte. `barnabas schema show API VERSION
--html FILE` writes a page about one version; `barnabas explain WORD` explains errors, KIPs and settings.
"""
_TABLES = (
    "<style>.md-typeset table:not([class]) :is(th, td) { min-width: 0; padding: .4em .7em; } "
    ".md-typeset td code { white-space: nowrap; }</style>"
)
"""Many columns fit on a page of the theme."""
_NARROW = "<style>.md-typeset table:not([class]) :is(th, td) { min-width: 0; padding: .5em .8em; }</style>"
"""Tables of all pages, on narrow screens too."""
_WRAPPED = "<style>.md-typeset pre > code { white-space: pre-wrap; overflow-wrap: anywhere; }</style>"
"""The long signatures of the reference."""
_SEEN = re.compile(r"^- \*\*(.+?)\*\*: (.+)$", re.M)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages. Those of single APIs are reached from the index."""
    seen = versions_used(Path(config.docs_dir, "compatibility.md").read_text("utf-8"))
    files.append(File.generated(config, f"{FOLDER}/apis.md", content=index()))
    for key in facts.api_keys():
        name = facts.api_name(key)
        page = File.generated(config, f"{FOLDER}/{name}.md", content=api(key, seen[name]), inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(page)
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """A page with the style of its tables, and of its signatures."""
    style = _NARROW + (_WRAPPED if page.file.src_uri == "reference.md" else "")
    return output.replace("</head>", f"{style}</head>", 1)


def versions_used(page: str) -> dict[str, list[tuple[str, str]]]:
    """By API: the clients that the page about compatibility says use it, and which versions they sent."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for client, apis in _SEEN.findall(page.partition("\n## Versions\n")[2].partition("\n## ")[0]):
        for each in apis.split("; "):
            name, _, versions = each.partition(" ")
            found[name].append((client, versions))
    return found


def index() -> str:
    """The page that lists the APIs, in Markdown."""
    names = api_page.releases.releases()
    return f"{_INDEX.format(oldest=names[0], newest=names[-1])}\n{_raw(_TABLES + api_page.index(lambda name: f'{name}.html'))}"


def api(key: int, seen: list[tuple[str, str]]) -> str:
    """The page of an API, in Markdown. `seen`: clients and the versions that they use."""
    parts = [f"# {facts.api_name(key)}", "[All APIs](apis.md)", _raw(f"<style>{api_page.STYLE}</style>{_TABLES}{api_page.introduction(key)}")]
    for section in api_page.sections(key):
        # What is found by searching is the list of all fields and errors, not each of their versions.
        excluded = "" if section.of is None else " data-search-exclude='1'"
        parts += [f"## {section.title} {{: #{section.anchor}{excluded} }}", _raw(section.html)]
        if section.anchor == "clients" and seen:
            rows = [api_page.row(api_page.text(client), api_page.text(versions)) for client, versions in seen]
            parts += ["Versions that clients used with brokers from 0.8.2 to 4.4 ([compatibility](../compatibility.md#versions)):",
                      _raw(api_page.table(("client", "versions"), rows))]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _raw(html: str) -> str:
    """HTML that Markdown leaves alone."""
    return f"<div>\n{html}\n</div>"
