"""Random graphs compute on every level, and natively, what the graph level computes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from targets.base import TargetOptions, find_target
from targets.reference.interpret import interpret
from tests.fuzz.random_graphs import Graph
from tests.lowering import assert_close, check_levels

TOLERANCE = 2e-3
"""Errors add up along a graph, and sums may cancel."""
QUICK = settings(max_examples=40, derandomize=True, deadline=None, database=None,
                 suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=1000, derandomize=False, print_blob=True)


def check(data: st.DataObject) -> None:
    graph = Graph(data.draw)
    module, inputs = graph.build()
    expected = interpret(module, graph.weights, inputs)
    known = set[tuple[object, ...]]()
    for name in ("cuda", "cpu"):
        lowered, target = module.clone(), find_target(name)
        context = target.bind(TargetOptions()).context(graph.weights)
        check_levels(lowered, context, inputs, expected, TOLERANCE, known)
        if name == "cpu":
            model = target.bind(TargetOptions()).running.load(lowered, graph.weights)
            assert_close(model.run(inputs), expected, TOLERANCE, "native code")


@QUICK
@given(st.data())
def test_some_graphs(data: st.DataObject) -> None:
    check(data)


@pytest.mark.slow
@LONG
@given(st.data())
def test_many_graphs(data: st.DataObject) -> None:
    check(data)
