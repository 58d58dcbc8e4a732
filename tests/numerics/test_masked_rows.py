"""Rows of attention that a mask hides entirely: 0 or NaN, as the source says, in every kernel form.

scaled_dot_product_attention gives 0, whether the mask is of truth values or of -inf; a softmax of
-inf alone gives NaN. The sizes are those of kernels that keep whole rows, that walk the keys, and
that split the keys into parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pytest
from xdsl.ir import Operation

torch: Any = pytest.importorskip("torch")

import compiler  # noqa: E402
from compiler.frontend import load_model  # noqa: E402
from compiler.frontend.torch import in_memory  # noqa: E402
from dialects.block import KernelOp  # noqa: E402
from dialects.host.interpret import RunKernel, interpret_host  # noqa: E402
from dialects.strata.types import Array  # noqa: E402
from dialects.symbolic.symbol import Symbol  # noqa: E402
from targets.base import TargetOptions  # noqa: E402
from targets.cuda import TARGET as CUDA  # noqa: E402
from targets.cuda.build.interpreter import Interpreter  # noqa: E402
from tests.lowering import lower  # noqa: E402
from tests.pytorch.programs import Function, export  # noqa: E402

BATCH, HEADS, DEPTH = 2, 2, 16
SIZES = {"few": (5, 7), "walked": (37, 150), "parts": (1, 600)}
attention = torch.nn.functional.scaled_dot_product_attention


# ---------------------------------------------------------------------- masks: true is seen
def of_rows(rows: int, keys: int) -> Any:
    """The first and the last row see nothing."""
    seen = torch.rand(rows, keys, generator=torch.Generator().manual_seed(rows)) < 0.6
    seen[[0, -1]] = False
    return seen


def of_keys(rows: int, keys: int) -> Any:
    """The last sequence is all padding, and the first one is padded on the left."""
    first = torch.tensor([keys // 2 + 1, keys]).reshape(BATCH, 1, 1, 1)
    return torch.arange(keys) >= first


def of_all(rows: int, keys: int) -> Any:
    seen = of_rows(rows, keys).expand(BATCH, HEADS, rows, keys) & of_keys(rows, keys)
    return seen.contiguous()


MASKS = {"rows": of_rows, "keys": of_keys, "all": of_all}


# ---------------------------------------------------------------------- spellings
def kept(q: Any, k: Any, v: Any, seen: Any) -> Any:
    return attention(q, k, v, seen)


def added(q: Any, k: Any, v: Any, seen: Any) -> Any:
    return attention(q, k, v, torch.where(seen, 0.0, -torch.inf).to(q.dtype))


def added_numbers(q: Any, k: Any, v: Any, seen: Any) -> Any:
    distances = torch.arange(k.shape[2]).to(q.dtype) * -0.01
    return attention(q, k, v, torch.where(seen, distances, -torch.inf))


def causal(q: Any, k: Any, v: Any, seen: Any) -> Any:
    rows = torch.arange(q.shape[2])[:, None] >= torch.arange(k.shape[2])
    return attention(q, k, v, rows & seen)


def safe(q: Any, k: Any, v: Any, seen: Any) -> Any:
    scores = q @ k.mT * 0.25 + torch.where(seen, 0.0, -torch.inf)
    return torch._safe_softmax(scores, -1) @ v


def cleaned(q: Any, k: Any, v: Any, seen: Any) -> Any:
    weights = torch.softmax((q @ k.mT * 0.25).masked_fill(~seen, -torch.inf), -1)
    return torch.nan_to_num(weights, 0.0) @ v


def chosen(q: Any, k: Any, v: Any, seen: Any) -> Any:
    weights = torch.softmax((q @ k.mT * 0.25).masked_fill(~seen, -torch.inf), -1)
    return torch.where(seen.any(-1, keepdim=True), weights @ v, 0.0)


def undefined(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """NaN in rows that see nothing."""
    return torch.softmax(q @ k.mT * 0.25 + torch.where(seen, 0.0, -torch.inf), -1) @ v


SPELLINGS = (kept, added, added_numbers, causal, safe, cleaned, chosen, undefined)


# ---------------------------------------------------------------------- checks
def inputs_of(mask: str, sizes: str) -> list[Any]:
    rows, keys = SIZES[sizes]
    source = torch.Generator().manual_seed(keys)
    factors = [torch.randn(BATCH, HEADS, n, DEPTH, generator=source) for n in (rows, keys, keys)]
    return [*factors, MASKS[mask](rows, keys)]


def check(found: Array, spelling: Callable[..., Any], inputs: Sequence[Any]) -> None:
    want = spelling(*(x if x.dtype == torch.bool else x.double() for x in inputs)).numpy()
    hidden = ~np.broadcast_to(inputs[3].any(-1, keepdim=True).numpy(), want.shape)
    assert hidden.any() and np.isnan(want[hidden]).all() == (spelling is undefined)
    np.testing.assert_allclose(found.astype(np.float64), want, rtol=0, atol=2e-5)


def dynamic(open_sizes: bool) -> Any:
    """Rows and keys as open sizes."""
    if not open_sizes:
        return None
    rows, keys = (torch.export.Dim(name, min=2) for name in ("rows", "keys"))
    return ({2: rows}, {2: keys}, {2: keys}, {2: rows, 3: keys})


def on_the_cpu(
    spelling: Callable[..., Any], inputs: Sequence[Any], *, open_sizes: bool = False,
    exact: bool = False
) -> Array:
    program = export(spelling, inputs, dynamic(open_sizes))
    executable = compiler.compile(program, target="cpu", cache="off", threads=1, exact=exact)
    return executable(*(x.numpy() for x in inputs))[0]


def in_tiles(
    spelling: Callable[..., Any], inputs: Sequence[Any], run: RunKernel | None = None
) -> Array:
    """What the CUDA target's tiles compute."""
    model = in_memory(export(Function(spelling), inputs))
    assert model is not None
    imported = load_model(model)
    options = TargetOptions("sm_90", interpret=run is not None)
    for _ in lower(imported.module, CUDA.bind(options).context(imported.weights)):
        pass
    arrays = [x.numpy() for x in inputs]
    return interpret_host(imported.module, arrays, imported.weights, run)[0]


CASES = [("rows", "few"), ("all", "walked"), ("keys", "parts")]
A_FEW = [(spelling, *CASES[k % 3]) for k, spelling in enumerate(SPELLINGS)]


@pytest.mark.parametrize(("spelling", "mask", "sizes"), A_FEW)
def test_on_the_cpu(spelling: Callable[..., Any], mask: str, sizes: str) -> None:
    inputs = inputs_of(mask, sizes)
    check(on_the_cpu(spelling, inputs), spelling, inputs)


@pytest.mark.parametrize(("spelling", "mask", "sizes"), A_FEW)
def test_tiles_of_cuda(spelling: Callable[..., Any], mask: str, sizes: str) -> None:
    inputs = inputs_of(mask, sizes)
    check(in_tiles(spelling, inputs), spelling, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", list(SIZES))
@pytest.mark.parametrize("mask", list(MASKS))
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_all(spelling: Callable[..., Any], mask: str, sizes: str) -> None:
    inputs = inputs_of(mask, sizes)
    for exact in (False, True):
        check(on_the_cpu(spelling, inputs, exact=exact), spelling, inputs)
    check(in_tiles(spelling, inputs), spelling, inputs)


@pytest.mark.parametrize("spelling", [kept, added, undefined])
def test_open_sizes(spelling: Callable[..., Any]) -> None:
    inputs = inputs_of("all", "walked")
    check(on_the_cpu(spelling, inputs, open_sizes=True), spelling, inputs)


# ---------------------------------------------------------------------- numbers that masks hide
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_hidden_keys_that_are_no_numbers(spelling: Callable[..., Any]) -> None:
    """The reference makes of a hidden key or value what eager mode does, in rows that see
    something. On the CPU, a tile of rows that sees no key near it may take no notice of it."""
    for mask, sizes in (("rows", "few"), ("all", "walked")):
        inputs = inputs_of(mask, sizes)
        program = export(spelling, inputs)
        executables = [compiler.compile(program, target=t, cache="off")
                       for t in ("cpu", "reference")]
        inputs[3][..., 2] = False
        before = inputs[3].tril() if spelling is causal else inputs[3]
        seen = np.broadcast_to(before.any(-1).numpy(), inputs[0].shape[:-1])
        for number, factor in product((torch.nan, torch.inf, -torch.inf), (1, 2)):
            given = [x.clone() for x in inputs]
            given[factor][..., 2, :] = 0
            plain = executables[1](*(x.numpy() for x in given))[0]
            given[factor][..., 2, 0] = number
            want = spelling(*given).numpy()
            cpu, reference = (e(*(x.numpy() for x in given))[0] for e in executables)
            np.testing.assert_allclose(reference[seen], want[seen], rtol=0, atol=2e-5)
            near = [np.isclose(cpu, x, rtol=0, atol=2e-5, equal_nan=True).all(-1)
                    for x in (reference, plain)]
            assert (near[0] | near[1]).all()
            assert near[0].all() or sizes == "walked"


@pytest.mark.parametrize("sizes", list(SIZES))
def test_the_lowest_number_beside_infinity(sizes: str) -> None:
    """A key with the lowest finite number is seen where all others are -inf."""
    q, k, v, seen = inputs_of("rows", sizes)
    lowest = torch.finfo(torch.float32).min
    mask = torch.where(seen, 0.0, -torch.inf)
    mask[0, 1] = mask[-1, -1] = mask[-1, -2] = lowest
    want = attention(q.double(), k.double(), v.double(), mask.double()).numpy()
    found = on_the_cpu(added_mask, (q, k, v, mask)), in_tiles(added_mask, (q, k, v, mask))
    for got in found:
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


def added_mask(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return attention(q, k, v, mask)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize(("spelling", "mask", "sizes"), [
    (added, "all", "walked"), (kept, "keys", "parts"), (undefined, "rows", "few")])
def test_triton_source(
    spelling: Callable[..., Any], mask: str, sizes: str, interpreter: Interpreter
) -> None:
    def run(kernel: Operation, buffers: Sequence[Array], at: Mapping[Symbol, int]) -> None:
        assert isinstance(kernel, KernelOp)
        interpreter.run(kernel, buffers, at)

    inputs = inputs_of(mask, sizes)
    check(in_tiles(spelling, inputs, run), spelling, inputs)
