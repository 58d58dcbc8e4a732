"""New keys and values behind those of a cache, on CUDA: attention reads both where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from compiler.api import model_of_argument
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.state import State
from dialects.block import KernelOp
from dialects.host.interpret import RunKernel, interpret_host
from dialects.strata.types import Array, BufferType
from dialects.symbolic.symbol import Symbol
from targets.cuda.build.interpreter import Interpreter

Pair = tuple[Tensor, Tensor]
BATCH, HEADS, DEPTH = 2, 8, 16


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def longer(old: Tensor, new: Tensor) -> Tensor:
    return torch.cat([old, new], 2)


def widened(x: Tensor) -> Tensor:
    """All heads of queries, as models repeat those of keys."""
    batch, heads, length, depth = x.shape
    return x[:, :, None].expand(batch, heads, HEADS // heads, length, depth).reshape(
        batch, HEADS, length, depth)


def grouped(q: Tensor, k: Pair, v: Pair) -> Tensor:
    return attention(q, longer(*k), longer(*v))


def repeated_after(q: Tensor, k: Pair, v: Pair) -> Tensor:
    return attention(q, widened(longer(*k)), widened(longer(*v)))


def interleaved_after(q: Tensor, k: Pair, v: Pair) -> Tensor:
    k_all, v_all = (longer(*x).repeat_interleave(HEADS // x[0].shape[1], 1) for x in (k, v))
    return attention(q, k_all, v_all)


def repeated_before(q: Tensor, k: Pair, v: Pair) -> Tensor:
    return attention(q, longer(*map(widened, k)), longer(*map(widened, v)))


def written_out(q: Tensor, k: Pair, v: Pair) -> Tensor:
    scores = q @ widened(longer(*k)).transpose(-1, -2) * 0.25
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
    return weights @ widened(longer(*v))


def three_parts(q: Tensor, k: Pair, v: Pair) -> Tensor:
    """Some keys stay in front, as sinks of attention do."""
    return attention(q, *(torch.cat([new, old, new], 2) for old, new in (k, v)))


class Step(nn.Module):
    def __init__(self, function: Callable[[Tensor, Pair, Pair], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, q: Tensor, k: Tensor, v: Tensor, new_k: Tensor, new_v: Tensor) -> Tensor:
        return self.function(q, (k, new_k), (v, new_v))


class Case(NamedTuple):
    function: Callable[[Tensor, Pair, Pair], Tensor]
    heads: int = 2
    past: int = 200
    new: int = 1
    is_open: bool = False
    """Whether the length of the cache is known at run time only."""

    def inputs(self, past: int = 0) -> list[Tensor]:
        torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
        sizes = [(HEADS, self.new), *[(self.heads, past or self.past)] * 2,
                 *[(self.heads, self.new)] * 2]
        return [torch.randn(BATCH, *size, DEPTH, dtype=torch.float16) for size in sizes]


FORMS = (grouped, repeated_after, interleaved_after, repeated_before, written_out, three_parts)
CASES = {
    **{f.__name__: Case(f) for f in FORMS},
    **{f"{heads} heads": Case(grouped, heads=heads) for heads in (1, 4, 8)},
    **{f"{past} cached": Case(grouped, past=past) for past in (1, 63, 64, 127, 128)},
    "three new rows": Case(grouped, new=3), "forty new rows": Case(grouped, new=40),
    "one head for each, long": Case(grouped, heads=8, past=700),
    "an open length": Case(grouped, is_open=True, new=2),
    "an open length, repeated": Case(repeated_after, is_open=True, new=17)}


def lowered(step: nn.Module, case: Case, *, interpret: bool = False) -> State:
    length = {2: torch.export.Dim.DYNAMIC}
    open_sizes = {"q": None, "k": length, "v": length, "new_k": None, "new_v": None}
    program = torch.export.export(step, tuple(case.inputs()), strict=False,
                                  dynamic_shapes=open_sizes if case.is_open else None)
    return Compiler(model_of_argument(program), CompileOptions(
        target="cuda", features="sm_90", cache="off", tuned="off", interpret=interpret,
    )).lower("block")


def kernels_of(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, KernelOp)]


def computed(
    case: Case, past: Sequence[int] = (), *, interpret: bool = False, run: RunKernel | None = None
) -> list[KernelOp]:
    """The kernels that compute a case, which is compared with doubles at each length."""
    step = Step(case.function)
    state = lowered(step, case, interpret=interpret)
    for count in past or (case.past,):
        given = case.inputs(count)
        found = interpret_host(
            state.module, [x.numpy() for x in given], state.context.weights, run)[0]
        expected = step(*(x.double() for x in given)).numpy()
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=4e-3)
    return kernels_of(state.module)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_nothing_is_copied(case: Case) -> None:
    kernels = computed(case, (5, 64, 131, 200) if case.is_open else ())
    names = [k.sym_name.data.partition("_")[0] for k in kernels]
    assert names in (["online"], ["online", "parts"])


@pytest.mark.parametrize("case", [Case(grouped, new=300), Case(grouped, new=300, is_open=True)])
def test_blocks_of_rows_share_one_copy(case: Case) -> None:
    """Each block would read the parts again."""
    names = [k.sym_name.data.partition("_")[0] for k in computed(case)]
    assert names.count("online") == 1 and len(names) > 1


class Projected(nn.Module):
    """The heads of queries lie side by side in rows, as the result of a product does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(HEADS * DEPTH, HEADS * DEPTH, dtype=torch.float16)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, new_k: Tensor, new_v: Tensor) -> Tensor:
        rows = self.linear(q.transpose(1, 2).reshape(BATCH, 1, HEADS * DEPTH))
        heads = rows.view(BATCH, 1, HEADS, DEPTH).transpose(1, 2)
        return grouped(heads, (k, new_k), (v, new_v))


def test_queries_side_by_side() -> None:
    case = Case(grouped)
    names = [k.sym_name.data for k in kernels_of(lowered(Projected(), case).module)]
    assert not any(n.startswith(("pack", "map", "copy")) for n in names)


class Returning(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, new_k: Tensor, new_v: Tensor) -> Any:
        k_all, v_all = longer(k, new_k), longer(v, new_v)
        return attention(q, k_all, v_all), k_all, v_all


def test_attention_reads_a_cache_that_is_written_anyway() -> None:
    case = Case(grouped)
    kernels = kernels_of(lowered(Returning(), case).module)
    [online] = [k for k in kernels if k.sym_name.data.startswith("online")]
    lengths = {size.constant for a in online.body.block.args if isinstance(a.type, BufferType)
               for size in a.type.shape}
    assert case.past + case.new in lengths and case.past not in lengths


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("name", ["grouped", "127 cached", "8 heads", "an open length"])
def test_triton_source(name: str, interpreter: Interpreter) -> None:
    def run(kernel: Operation, buffers: Sequence[Array], sizes: Mapping[Symbol, int]) -> None:
        assert isinstance(kernel, KernelOp)
        interpreter.run(kernel, buffers, sizes)

    computed(CASES[name], interpret=True, run=run)
