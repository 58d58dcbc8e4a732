"""What a worker does with a number: draw that model, and judge it."""

from __future__ import annotations

import time
import traceback

from tests.fuzz.solver.explained import explanation_of
from tests.fuzz.solver.generate import Unusable, generate
from tests.fuzz.solver.judge import judge
from tests.fuzz.solver.peers import Peer, peer_of
from tests.fuzz.solver.pool import Outcome


def run_peer_alone(number: int, seed: int) -> Outcome:
    """Run one model in onnxruntime, and nothing else."""
    drawn = generate(number, seed)
    peer = peer_of(drawn.proto)
    if isinstance(peer, Peer):
        for feed in drawn.feeds:
            peer.raw(feed)
    return Outcome(number)


def work(number: int, seed: int, peer: bool = True) -> Outcome:
    """Draw and judge one model. `peer`: also by onnxruntime."""
    started = time.monotonic()
    try:
        drawn = generate(number, seed)
    except Unusable as reason:
        return Outcome(number, "unusable", str(reason))
    operators = tuple(node.op_type for node in drawn.proto.graph.node)
    try:
        found = judge(drawn, peer)
        kind, text = found.kind, f"run {found.feed}: {found.text}" if found else ""
        reason = explanation_of(drawn, found) if found else ""
        if reason:
            kind, text = "explained", reason
    except Exception:
        kind, text = "harness", traceback.format_exc()
    return Outcome(number, kind, text, operators, time.monotonic() - started, len(drawn.feeds))
