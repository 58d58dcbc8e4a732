"""Strata's dialects and passes, and those of installed plugins, for xDSL's own tools.

`xdsl-opt` finds this through the entry point `xdsl.universe`. Everything is loaded lazily.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Dialect
from xdsl.universe import Universe

from dialects.registry import dialect_loaders
from passes.installed import entry_points
from passes.registry import pass_loaders


def _all_dialects() -> dict[str, Callable[[], Dialect]]:
    installed: dict[str, Callable[[], Dialect]] = {
        entry.name: entry.load for entry in entry_points("strata.dialects")}
    return installed | dialect_loaders()


STRATA_UNIVERSE = Universe(all_dialects=_all_dialects(), all_passes=dict(pass_loaders()))
