"""Everything that the report shows, as JSON.

    model, target, command, environment       texts
    failure     null, or {"where", "message"}: the pass or phase that failed, and its message
    nodes       [{"name", "op", "kernels": [number], "gone", "ms"}]
    edges       [[number, number]]: the second node reads the first
    tree        the nodes, folded by module (`modules.py`)
    kernels     [{"name", "nodes": [number], "bytes", "flops", "schedule", "origin", "launches",
                 "ms", "of_roofline"}]; the last two are null without a profile
    pairs, memory, host, coverage             as in `explain --json`
    profile     null, or {"wall_ms", "host_ms", "call_ms", "where", "notes", "roofline"}
    comparison  null, or as in `compare --json`
    notes       why something is missing
    passes      [{"name", "level", "seconds", "removed", "added", "changed", "moved",
                  "kinds", "lines"}]
    listings    [{"title", "code", "text"}]: a level as read, levels as they were left, and target
                code; `text` is packed JSON of the parts (`listings.py`)

Packed JSON is compressed with gzip and written in base64, which browsers unpack.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from compiler.explaining.collect import CONSTANT, Explanation
from compiler.reporting.history import History
from compiler.reporting.listings import Part, code_listing, listing, number_of
from compiler.reporting.modules import folded

Facts = dict[str, Any]


@dataclass
class Collected:
    """What a report is made of. `code`: texts by level of target code."""

    model: str
    explanation: Explanation
    history: History
    command: str = ""
    environment: Sequence[str] = ()
    code: dict[str, str] = field(default_factory=dict[str, str])
    profile: Facts | None = None
    comparison: Facts | None = None
    notes: list[str] = field(default_factory=list[str])
    failure: tuple[str, str] | None = None
    """Where compilation failed, and the message."""


def facts_of(collected: Collected) -> Facts:
    found = collected.explanation
    index = {node.name: k for k, node in enumerate(found.nodes)}
    timed = _by_name(collected.profile, "nodes")
    failed = collected.failure
    return finite({
        "model": collected.model, "target": found.target, "command": collected.command,
        "environment": list(collected.environment), "notes": collected.notes,
        "failure": failed and {"where": failed[0], "message": failed[1]},
        "sizes": {str(s): v for s, v in found.sizes.items()},
        "nodes": _nodes(found, timed), "edges": _edges(found, index),
        "tree": folded(found.nodes, [
            k for k, n in enumerate(found.nodes) if n.op != CONSTANT]),
        "kernels": _kernels(found, index, _by_name(collected.profile, "kernels")),
        "pairs": [p.json for p in found.pairs], "memory": found.memory,
        "host": [{"what": what, "nodes": nodes} for what, nodes in found.host],
        "coverage": {level: {"operations": total, "with_node": located}
                     for level, (located, total) in found.levels.items()},
        "profile": collected.profile and {
            key: collected.profile[key]
            for key in ("wall_ms", "host_ms", "call_ms", "where", "notes", "roofline")},
        "comparison": collected.comparison,
        "passes": [row.json for row in collected.history.passes],
        "listings": _listings(collected, index)})


def finite(content: Any) -> Any:
    """JSON without numbers that JSON does not have: NaN and infinities become null."""
    if isinstance(content, dict):
        return {key: finite(value) for key, value in cast(Facts, content).items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in cast("list[Any]", content)]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _by_name(profile: Facts | None, key: str) -> dict[str, Facts]:
    return {row["name"]: row for row in profile[key]} if profile else {}


def _nodes(found: Explanation, timed: Mapping[str, Facts]) -> list[Facts]:
    numbers = {name: k for k, name in enumerate(found.found)}
    rows = [found.node_json(node) for node in found.nodes]
    return [{**row, "kernels": [numbers[k] for k in row["kernels"] if k in numbers],
             "ms": timed.get(row["name"], {}).get("ms")} for row in rows]


def _edges(found: Explanation, index: Mapping[str, int]) -> list[list[int]]:
    pairs = ((number_of(a, index), number_of(b, index)) for a, b in found.edges)
    return [[a, b] for a, b in dict.fromkeys(pairs)
            if a is not None and b is not None and a != b]


def _kernels(
    found: Explanation, index: Mapping[str, int], timed: Mapping[str, Facts]
) -> list[Facts]:
    rows: list[Facts] = []
    for kernel in found.found.values():
        times = timed.get(kernel.name, {})
        rows.append({**kernel.json, "nodes": [index[n] for n in kernel.nodes if n in index],
                     "ms": times.get("ms"), "of_roofline": times.get("of_roofline")})
    return rows


# ---------------------------------------------------------------------- listings
def _listings(collected: Collected, index: Mapping[str, int]) -> list[Facts]:
    """Each level, without the lines of parts that the level before has in the same words."""
    found, before = list[Facts](), list[Part]()
    for title, text in collected.history.texts:
        parts = listing(text, index)
        found.append(_packed(title, False, [part.json(before) for part in parts]))
        before = parts
    kernels = list(collected.explanation.found)
    return found + [_packed(level, True, [part.json() for part in code_listing(
        text, kernels, index)])
                    for level, text in collected.code.items()]


def _packed(title: str, code: bool, parts: Sequence[Facts]) -> Facts:
    return {"title": title, "code": code, "text": packed(parts)}


def packed(content: Any) -> str:
    """JSON, compressed, in base64; the same content gives the same text."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def unpacked(text: str) -> Any:
    """What `packed` was given."""
    return json.loads(gzip.decompress(base64.b64decode(text)))
