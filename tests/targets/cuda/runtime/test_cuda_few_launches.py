"""Few launches in a row need no graph, whose addresses would have to be brought up to date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from targets.cuda.runtime import driver
from targets.cuda.runtime.driver_graph import CopyNode, FewLaunches, Node, few_launches
from targets.cuda.runtime.kernels import PackedLaunch


def launches(count: int, *, waits: bool = False) -> list[Node]:
    return [PackedLaunch(f"f{k}", k + 1, 32, 0, [f"parameters of {k}"], [], waits and k > 0)
            for k in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_launched_in_turn(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []

    def launch(*given: Any) -> None:
        seen.append(given)

    monkeypatch.setattr(driver, "launch", launch)
    nodes = launches(count)
    made = few_launches(nodes, [[k - 1] if k else [] for k in range(count)])
    assert isinstance(made, FewLaunches)
    made.update(count - 1)
    for _ in range(2):
        made.launch(7)
    once = [(f"f{k}", (k + 1, 1, 1), 32, 0, [f"parameters of {k}"], 7) for k in range(count)]
    assert seen == once * 2


GRAPHS: Sequence[tuple[Sequence[Node], list[list[int]]]] = [
    (launches(5), [[], [0], [1], [2], [3]]),
    (launches(3), [[], [0], [0]]),
    (launches(2), [[], []]),
    (launches(3), [[], [], [0, 1]]),
    (launches(2, waits=True), [[], [0]]),
    ([*launches(1), CopyNode(1, 2, 3)], [[], [0]]),
]


@pytest.mark.parametrize(("nodes", "waits"), GRAPHS, ids=[
    "many", "fork", "beside", "join", "early", "copy"])
def test_graphs_keep_what_they_are_for(nodes: Sequence[Node], waits: list[list[int]]) -> None:
    assert few_launches(nodes, waits) is None
