"""The log of messages that concern no single call of the Python interface.

Nothing is logged in most compilations, so Python's `logging` is imported with the first message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger


def log() -> Logger:
    """The log named "strata"."""
    import logging

    return logging.getLogger("strata")
