"""Peers: other runtimes that `bench` measures beside us, a file each, found by its name.

    PACKAGE: str                                        what must be installed
    def load(model: str, threads: int) -> Peer          ready to run

A peer gets the same arrays and the same number of threads as we do.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from compiler.diagnostics import Problem, StrataError

if TYPE_CHECKING:
    from dialects.types import Array


class Peer(Protocol):
    """A model in another runtime."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The outputs in model order."""
        ...


def peer_names() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def load_peer(name: str, model: str, threads: int) -> Peer:
    """Raises StrataError for a peer that there is not, or that is not installed."""
    if name not in peer_names():
        raise StrataError(f"there is no peer '{name}'", [Problem(
            "unknown peer", hint=f"there are: {', '.join(peer_names())}")])
    module = importlib.import_module(f"{__name__}.{name}")
    try:
        return module.load(model, threads)
    except ImportError as error:
        raise StrataError(f"{name} is not installed", [Problem(
            str(error), hint=f"pip install {module.PACKAGE}")]) from None
