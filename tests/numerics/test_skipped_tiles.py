"""Tiles of attention that a mask hides from all rows of a program are not computed on the CPU.

A hidden score of NaN makes its row NaN where it is computed, since a mask adds -inf to it. So what
is spoiled tells which keys are walked: each block of rows must be right while all keys that are
away from those that it sees are NaN. Rows that see nothing are what the source says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import compiler  # noqa: E402
from compiler.frontend import load_model  # noqa: E402
from compiler.frontend.torch import in_memory  # noqa: E402
from dialects.block import KernelOp  # noqa: E402
from dialects.strata.types import Array  # noqa: E402
from dialects.symbolic.size_products import product  # noqa: E402
from targets.base import TargetOptions  # noqa: E402
from targets.cpu import TARGET as CPU  # noqa: E402
from tests.lowering import lower  # noqa: E402
from tests.pytorch.programs import export  # noqa: E402

BLOCK = 32
"""The rows of a program, at most."""
NEAR = 32
"""Keys this far from a seen one may be computed: the tiles of a loop are whole."""
ROWS, KEYS, DEPTH = 96, 150, 16
attention = torch.nn.functional.scaled_dot_product_attention


def window(rows: int, keys: int) -> Any:
    distance = torch.arange(rows)[:, None] - torch.arange(keys)
    return (distance >= 0) & (distance < 5)


def documents(rows: int, keys: int) -> Any:
    """Packed sequences; rows and keys have numbers of their own."""
    return torch.arange(rows)[:, None] * 5 // rows == torch.arange(keys) * 5 // keys


def reversed_causal(rows: int, keys: int) -> Any:
    """The first row sees all keys, the last one few."""
    return torch.arange(keys) >= torch.arange(rows)[:, None]


def padded(rows: int, keys: int) -> Any:
    return (torch.arange(keys) >= 60).expand(rows, keys)


def nothing(rows: int, keys: int) -> Any:
    """The first block of rows sees nothing, nor does one row of the second."""
    seen = window(rows, keys)
    seen[:BLOCK] = False
    seen[BLOCK + 1:BLOCK + 2] = False
    return seen


MASKS = (window, documents, reversed_causal, padded, nothing)


def hidden(q: Any, k: Any, v: Any, seen: Any) -> Any:
    return attention(q, k, v, seen)


def scores_hidden(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """NaN in rows that see nothing."""
    return torch.softmax((q @ k.mT * 0.25).masked_fill(~seen, -torch.inf), -1) @ v


def by_documents(q: Any, k: Any, v: Any, ids: Any, more: Any) -> Any:
    """The mask is computed from an input."""
    return attention(q, k, v, ids[:, None] == more[None])


def inputs(rows: int = ROWS, keys: int = KEYS) -> list[Any]:
    source = torch.Generator().manual_seed(rows)
    return [torch.randn(1, 2, n, DEPTH, generator=source) for n in (rows, keys, keys)]


def in_doubles(spelling: Any, given: list[Any]) -> Array:
    """What eager mode computes."""
    return spelling(*(x.double() if x.is_floating_point() else x for x in given)).numpy()


def compiled(spelling: Any, given: list[Any], dynamic: Any = None) -> Callable[..., Array]:
    found = compiler.compile(export(spelling, given, dynamic), target="cpu", cache="off",
                             threads=1)

    def run(*arrays: Any) -> Array:
        return found(*(x.numpy() for x in arrays))[0]

    return run


def spoiled(array: Any, places: Any) -> Any:
    copy = array.clone()
    copy[..., places, :] = torch.nan
    return copy


def check_each_block(
    run: Callable[..., Array], given: list[Any], want: Array, seen: Any
) -> int:
    """How many pairs of a block of rows and a key are certainly not computed."""
    left_out = 0
    for first in range(0, seen.shape[0], BLOCK):
        rows = slice(first, first + BLOCK)
        keys = seen[rows].any(0).nonzero()
        low, high = (int(keys.min()), int(keys.max())) if keys.numel() else (0, 0)
        tail = seen.shape[1] // NEAR * NEAR - NEAR  # the rest behind whole tiles is always walked
        far = [j for j in range(tail) if j < low - NEAR or j > high + NEAR]
        q, k, v, *more = given
        found = run(q, spoiled(k, far), spoiled(v, far), *more)
        np.testing.assert_allclose(found[..., rows, :], want[..., rows, :], rtol=0, atol=2e-5)
        left_out += len(far)
    return left_out


@pytest.mark.parametrize("mask", MASKS)
def test_hidden_tiles(mask: Any) -> None:
    given = [*inputs(), mask(ROWS, KEYS)]
    for spelling in (hidden, scores_hidden):
        run = compiled(spelling, given)
        want = in_doubles(spelling, given)
        np.testing.assert_allclose(run(*given), want, rtol=0, atol=2e-5)
        assert check_each_block(run, given, want, given[3]) > 0


def test_documents_from_an_input() -> None:
    """Other documents, with the same program."""
    given = [*inputs(), torch.arange(ROWS) // 20, torch.arange(KEYS) // 20]
    run = compiled(by_documents, given)
    for length in (20, 7, 200):
        ids = torch.arange(ROWS) // length, torch.arange(KEYS) // length
        more = [*given[:3], *ids]
        want = in_doubles(by_documents, more)
        np.testing.assert_allclose(run(*more), want, rtol=0, atol=2e-5)
        left_out = check_each_block(run, more, want, ids[0][:, None] == ids[1])
        assert (left_out == 0) == (length == 200)


def test_open_sizes() -> None:
    length = torch.export.Dim("length", min=2)
    given = [*inputs(ROWS, ROWS), window(ROWS, ROWS)]
    run = compiled(hidden, given, ({2: length}, {2: length}, {2: length}, {0: length, 1: length}))
    for size in (ROWS, 133, 5):
        for mask in MASKS:
            more = [*inputs(size, size), mask(size, size)]
            want = in_doubles(hidden, more)
            np.testing.assert_allclose(run(*more), want, rtol=0, atol=2e-5)
            check_each_block(run, more, want, more[3])


def causal(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, is_causal=True)


def in_window(q: Any, k: Any, v: Any) -> Any:
    distance = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
    return attention(q, k, v, (distance >= 0) & (distance < 5))


@pytest.mark.parametrize("spelling", [causal, in_window, by_documents])
def test_masks_are_no_tensors(spelling: Any) -> None:
    """What indices, or the numbers of documents, tell of rows and keys is not in memory."""
    long = 512
    more = [torch.arange(long), torch.arange(long)] if spelling is by_documents else []
    model = in_memory(export(spelling, [*inputs(long, long), *more]))
    assert model is not None
    imported = load_model(model)
    for _ in lower(imported.module, CPU.bind(TargetOptions()).context(imported.weights)):
        pass
    kernels = [op for op in imported.module.body.block.ops if isinstance(op, KernelOp)]
    buffers = [b.type for kernel in kernels for b in kernel.buffers]
    assert len(kernels) == 1
    assert all(product(b.shape).constant < long * long for b in buffers)  # type: ignore[operator]
