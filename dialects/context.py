"""The xDSL context that parses the text of any level."""

from __future__ import annotations

from xdsl.context import Context

from dialects.registry import register_dialects


def make_context() -> Context:
    """A context with every dialect. A dialect is imported when its first operation is parsed."""
    context = Context()
    register_dialects(context)
    return context
