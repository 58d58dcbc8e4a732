"""What a caller sees of programs in Python's and PyTorch's manners is what eager mode shows."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tests.pytorch.dynamo.stateful_behaviours import BREAKING, PROGRAMS, seen


def _shown(name: str, backend: str | None) -> list[Any]:
    """What is seen of two calls, with new arguments."""
    torch._dynamo.reset()
    function, make = PROGRAMS[name]
    function = copy.deepcopy(function)
    if backend is not None:
        function = torch.compile(function, backend=backend, fullgraph=name not in BREAKING)
    torch.manual_seed(1)
    return [seen(name, function, make()) for _ in range(2)]


def _outside(value: Any) -> Any:
    """All that is no number of a tensor: structure, types, strides, and whether gradients are
    recorded."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape), value.stride(), value.requires_grad,
                value._is_view())
    if isinstance(value, dict):
        return [(key, _outside(v)) for key, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [_outside(v) for v in value]
    return value


def _tensors(value: Any) -> list[torch.Tensor]:
    return [v for v in torch.utils._pytree.tree_leaves(value) if isinstance(v, torch.Tensor)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_changes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """PyTorch's own backend, which compiles nothing, shows what Dynamo and AOTAutograd make of it;
    nothing runs eagerly."""
    want, theirs, ours = (_shown(name, backend) for backend in (None, "aot_eager", "strata"))
    assert _outside(ours) == _outside(theirs) == _outside(want)
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if name == "autocast_regions" else {}
    torch.testing.assert_close(_tensors(ours), _tensors(want), **tolerance)
    assert not [r for r in caplog.records if r.name == "strata" and r.levelname == "WARNING"]
