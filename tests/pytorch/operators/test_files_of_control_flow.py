"""Branches, loops and scans in `.pt2` files: their graphs are in the file, and are checked, too."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import load_model
from tests.pytorch.programs import check_outputs
from tests.pytorch.test_files import change_model

cond: Any = import_module("torch").cond
scan: Any = import_module("torch._higher_order_ops.scan").scan
while_loop: Any = import_module("torch._higher_order_ops.while_loop").while_loop


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        def more(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        return cond(x.sum() > 0, more, twice, [x])


class Loop(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        def goes_on(k: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return k < 6

        def turn(k: torch.Tensor, h: torch.Tensor) -> Any:
            return k + 1, torch.tanh(h * 1.5)

        return while_loop(goes_on, turn, (torch.zeros((), dtype=torch.int64), x))[1]


class Scan(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        def step(state: torch.Tensor, row: torch.Tensor) -> Any:
            new = torch.tanh(state + row)
            return new, new * 2
        return scan(step, x[0], x, dim=0)


MODELS = (Branches, Loop, Scan)


def saved(kind: type[torch.nn.Module], path: Path) -> tuple[torch.nn.Module, Path]:
    model = kind()
    torch.export.save(torch.export.export(model, (torch.ones(4, 3),)), path)
    return model, path


@pytest.mark.parametrize("kind", MODELS)
def test_results(kind: type[torch.nn.Module], tmp_path: Path) -> None:
    model, path = saved(kind, tmp_path / "model.pt2")
    executable = compiler.compile(path, target="reference")
    for sign in (1, -1):
        x = sign * torch.rand(4, 3)
        wanted = model(x)
        check_outputs(executable(x), wanted)


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """The nodes of a program's graphs, at any depth."""
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from inner if key == "nodes" else ()
            yield from nodes(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from nodes(inner)


@pytest.mark.parametrize("kind", MODELS)
def test_operators_of_inner_graphs_are_from_a_list(
    kind: type[torch.nn.Module], tmp_path: Path
) -> None:
    """Each node of each graph, one at a time."""
    _, path = saved(kind, tmp_path / "model.pt2")
    count = 0

    def counted(program: Any) -> None:
        nonlocal count
        count = len(list(nodes(program)))

    change_model(path, counted)
    assert count > 3
    for k in range(count):
        def attack(program: Any, k: int = k) -> None:
            list(nodes(program))[k]["target"] = "torch.os.system"

        changed = change_model(path, attack)
        with pytest.raises(StrataError, match=r"torch\.os\.system' is not allowed"):
            load_model(changed)
