"""A model as a module of JavaScript around its WebAssembly, for Node and for browsers."""

from __future__ import annotations

from pathlib import Path

_TEXT = Path(__file__).parent / "loader.mjs"


def javascript_text(name: str) -> str:
    """The module beside `name.wasm`."""
    return _TEXT.read_text(encoding="utf-8").replace("MODEL", name)
