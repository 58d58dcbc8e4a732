"""A model's WebAssembly for Node and for browsers: a module of JavaScript around it, and a page."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from pathlib import Path

_PAGE = Path(__file__).parent / "demo.html"
_LOADER = Path(__file__).parent / "loader.mjs"


def javascript_text(name: str) -> str:
    """The module beside `name.wasm`."""
    return _LOADER.read_text(encoding="utf-8").replace("MODEL", name)


def page_text(name: str, code: bytes, labels: Sequence[str]) -> str:
    """The page, one file. `code`: the contents of `name.wasm`. `labels`: what the last dim of an
    output counts: the names of classes, or the symbols of a text."""
    page = _PAGE.read_text(encoding="utf-8")
    values = {"@NAME@": html.escape(name), "@BYTES@": f"{len(code):,}",
              "@LABELS@": json.dumps(list(labels)).replace("<", "\\u003c"),
              "@LOADER@": javascript_text(name), "@CODE@": base64.b64encode(code).decode()}
    for place, value in values.items():
        page = page.replace(place, value)
    return page
