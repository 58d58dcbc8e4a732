"""Attention on CUDA leaves out keys that tables hide: other documents, padding, prefixes, lengths.

A small kernel compares keys with the range of a block's entries. Hidden keys that are walked
multiply their values by 0, which spoils a row if the value is NaN. So what is spoiled tells what is
walked: a block must be right while all values beyond its visible keys are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from compiler.frontend import load_model
from compiler.frontend.torch import in_memory
from dialects.block import KernelOp
from dialects.host import LaunchOp
from dialects.strata.types import Array
from dialects.symbolic.size_products import product
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.emit import emit_kernel
from tests.lowering import lower

torch: Any = pytest.importorskip("torch")
pytest.importorskip("triton")

from tests.pytorch.programs import export  # noqa: E402

HOPPER = TARGET.bind(TargetOptions("sm_90"))
INTERPRETED = TARGET.bind(TargetOptions("sm_90", interpret=True))
DEPTH, BATCH, HEADS = 16, 2, 2
attention = torch.nn.functional.scaled_dot_product_attention
Mask = Callable[..., Any]


class Case(NamedTuple):
    """A mask of batches, rows and keys from tables, and tables for the numbers of rows and keys."""

    mask: Mask
    tables: Callable[[int, int], Sequence[Any]]
    exact: bool = True
    """Whether ranges tell everything outside of what a block's rows see."""


def ids(rows: int, keys: int) -> list[Any]:
    """Documents of other lengths in each batch, for rows and for keys."""
    return [torch.stack([torch.arange(n) * 4 // n, torch.arange(n) * 3 // n])
            for n in (rows, keys)]


def shuffled(rows: int, keys: int) -> list[Any]:
    """Entries in no order: the range of a block says little, but nothing wrong."""
    source = torch.Generator().manual_seed(1)
    return [x[:, torch.randperm(x.shape[1], generator=source)] for x in ids(rows, keys)]


def lengths(rows: int, keys: int) -> list[Any]:
    return [torch.tensor([keys // 3, keys - 1]), torch.arange(keys)]


def valid(rows: int, keys: int) -> list[Any]:
    return [torch.arange(keys).expand(BATCH, keys) >= torch.tensor([[keys // 2], [5]])]


def same(rows: Any, keys: Any) -> Any:
    return rows[:, :, None] == keys[:, None, :]


def places(rows: int, keys: int) -> tuple[Any, Any]:
    return torch.arange(rows)[:, None], torch.arange(keys)


def causal(rows: Any, keys: Any) -> Any:
    i, j = places(rows.shape[1], keys.shape[1])
    return same(rows, keys) & (i >= j)


def windowed(rows: Any, keys: Any) -> Any:
    i, j = places(rows.shape[1], keys.shape[1])
    return same(rows, keys) & (i - j < 40) & (i >= j)


def prefixed(rows: Any, keys: Any) -> Any:
    """Keys of the same document, or up to a place that each row has."""
    return same(rows, keys) & (keys[:, None, :] <= rows[:, :, None] + 1) & (
        rows[:, :, None] + 1 > keys[:, None, :])


def either(rows: Any, keys: Any) -> Any:
    return same(rows, keys) | (rows[:, :, None] == keys[:, None, :] + 1)


def bytes_(rows: Any, keys: Any) -> Any:
    return same((rows * 80).to(torch.uint8), (keys * 80).to(torch.uint8))


def shorter(length: Any, keys: Any) -> Any:
    return keys < length[:, None, None]


def other(rows: Any, keys: Any) -> Any:
    return ~(rows[:, :, None] != keys[:, None, :])


CASES = {
    "documents": Case(same, ids), "causal": Case(causal, ids), "windows": Case(windowed, ids),
    "prefixes": Case(prefixed, ids), "either": Case(either, ids),
    "bytes": Case(bytes_, ids, exact=False),
    "negated": Case(other, ids), "shuffled": Case(same, shuffled, exact=False),
    "lengths": Case(shorter, lengths),
    "valid": Case(lambda v: v[:, None, :], valid),
}
ROWS = 200
each_case = pytest.mark.parametrize("name", CASES)


def masked(mask: Mask) -> Callable[..., Any]:
    def function(q: Any, k: Any, v: Any, *tables: Any) -> Any:
        return attention(q, k, v, mask(*tables)[:, None])

    return function


def inputs(name: str, rows: int = ROWS, keys: int = ROWS, depth: int = DEPTH) -> list[Any]:
    source = torch.Generator().manual_seed(rows)
    return [*(torch.randn(BATCH, HEADS, n, depth, generator=source).half()
              for n in (rows, keys, keys)), *CASES[name].tables(rows, keys)]


def lowered(name: str, given: Sequence[Any], target: Any, dynamic: Any = None) -> Any:
    model = in_memory(export(masked(CASES[name].mask), given, dynamic))
    assert model is not None
    imported = load_model(model)
    context = target.context(imported.weights)
    for _ in lower(imported.module, context):
        pass
    return imported.module, context


def kernels(module: ModuleOp, part: str) -> list[KernelOp]:
    return [op for op in module.body.block.ops
            if isinstance(op, KernelOp) and part in op.sym_name.data]


def expected(name: str, given: Sequence[Any]) -> Array:
    """What eager mode computes in f64, with 0 for rows that see nothing."""
    q, k, v = (x.double() for x in given[:3])
    seen = CASES[name].mask(*given[3:])[:, None]
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~seen, -torch.inf)
    return (torch.softmax(scores, -1).nan_to_num(0) @ v).numpy()


def run(program: Any, given: Sequence[Any]) -> Array:
    module, context = program
    [y] = INTERPRETED.running.load(module, context.weights).run([x.numpy() for x in given])
    return y


def check(program: Any, name: str, given: Sequence[Any]) -> int:
    """How many pairs of a block of rows and a key are certainly not walked."""
    want = expected(name, given)
    np.testing.assert_allclose(run(program, given), want, rtol=0, atol=4e-3)
    [online] = kernels(program[0], "online")
    assert online.schedule is not None
    *_, block = (x.tile for x in online.schedule.data.levels if x.kind == "grid")
    [step] = (x.tile for x in online.schedule.data.levels if x.kind == "loop")
    seen, left_out = CASES[name].mask(*given[3:]), 0
    whole = given[1].shape[2] // step * step  # the rest behind whole steps is walked anyway
    seen = seen.expand(BATCH, given[0].shape[2], given[1].shape[2])
    for first in range(0, seen.shape[1], block) if CASES[name].exact else ():
        q, k, v, *tables = given
        v, rows = v.clone(), slice(first, first + block)
        for b in range(BATCH):
            keys = seen[b, rows].any(0).nonzero()
            low = int(keys.min()) // step * step if keys.numel() else 0
            high = (int(keys.max()) // step + 1) * step if keys.numel() else 0
            v[b, :, :min(low, whole)], v[b, :, high:whole] = torch.nan, torch.nan
            left_out += min(low, whole) + max(whole - high, 0)
        found = run(program, [q, k, v, *tables])
        np.testing.assert_allclose(found[..., rows, :], want[..., rows, :], rtol=0, atol=4e-3)
    return left_out


@each_case
def test_hidden_keys_are_not_walked(name: str) -> None:
    given = inputs(name)
    left_out = check(lowered(name, given, INTERPRETED), name, given)
    assert left_out > 0 or not CASES[name].exact


def test_no_row_sees_anything() -> None:
    """One batch has no document of the keys."""
    given = inputs("documents")
    program = lowered("documents", given, INTERPRETED)
    given[3] = given[3] * torch.tensor([[1], [0]]) + torch.tensor([[0], [9]])
    assert check(program, "documents", given) > ROWS


@pytest.mark.parametrize("name", ["documents", "causal"])
def test_open_sizes(name: str) -> None:
    length = torch.export.Dim("length", min=2)
    dynamic = ({2: length}, {2: length}, {2: length}, {1: length}, {1: length})
    program = lowered(name, inputs(name), INTERPRETED, dynamic)
    for size in (3, 64, 150):
        check(program, name, inputs(name, size, size))


def test_rows_and_keys_of_other_numbers() -> None:
    given = inputs("documents", 70, 330)
    assert check(lowered("documents", given, INTERPRETED), "documents", given) > 0


def test_parts_of_keys() -> None:
    """Programs that walk parts of the keys for blocks of rows load bounds for their part."""
    given = inputs("documents", 128, 4096)
    program = lowered("documents", given, INTERPRETED)
    assert kernels(program[0], "visible") and kernels(program[0], "parts")
    assert check(program, "documents", given) > 0


def test_few_rows_search_the_mask() -> None:
    """Where one block holds all rows, programs search for themselves instead."""
    given = inputs("lengths", 40, 512)
    program = lowered("lengths", given, INTERPRETED)
    assert not kernels(program[0], "visible")
    assert check(program, "lengths", given) > 0


@each_case
@pytest.mark.parametrize("depth", [64, 128])
def test_code_for_hopper(name: str, depth: int) -> None:
    """Nothing of rows x columns is read or written, one search serves all heads, and the loop over
    keys has the bounds that it finds."""
    given = inputs(name, 1024, 1024, depth)
    module, _ = lowered(name, given, HOPPER)
    shapes = [product(b.type.shape).constant
              for kernel in kernels(module, "") for b in kernel.buffers]
    assert len(kernels(module, "visible")) == 1
    assert all(n < 1024 * 1024 for n in shapes)
    [online] = kernels(module, "online")
    source = emit_kernel(online).code
    [loop] = [line for line in source.splitlines() if "tl.range" in line]
    assert "tl.minimum" in loop and "tl.maximum" in loop


def test_layers_share_a_search() -> None:
    def layers(q: Any, k: Any, v: Any, rows: Any, keys: Any) -> Any:
        for _ in range(3):
            q = attention(q, k, v, causal(rows, keys)[:, None])
        return q

    given = inputs("causal")
    model = in_memory(export(layers, given))
    assert model is not None
    imported = load_model(model)
    for _ in lower(imported.module, HOPPER.context(imported.weights)):
        pass
    launched = [op.kernel.data for op in imported.module.walk() if isinstance(op, LaunchOp)]
    assert sum("visible" in name for name in launched) == 1 and len(launched) == 4
