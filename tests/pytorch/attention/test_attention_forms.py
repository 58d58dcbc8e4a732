"""Attention as models write it, heads shared, with biases and masks: one kernel on CUDA, and right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch.nn import functional
from xdsl.ir import Operation

from compiler.frontend import load_model
from compiler.frontend.torch import in_memory
from dialects.block import KernelOp
from dialects.host.interpret import RunKernel, interpret_host
from dialects.strata.types import Array
from dialects.symbolic.symbol import Symbol
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import emit_kernel
from tests.lowering import lower
from tests.pytorch.programs import Function, export

Tensor = torch.Tensor
BATCH, HEADS, ROWS, DEPTH = 2, 4, 37, 16


def plain(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    scores = q @ k.transpose(-1, -2) * 0.25
    return torch.softmax(scores if bias is None else scores + bias, -1) @ v


def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    group = HEADS // k.shape[1]
    return plain(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))


def expanded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    batch, heads, length, depth = k.shape
    group = HEADS // heads
    k, v = (x[:, :, None].expand(batch, heads, group, length, depth).reshape(
        batch, HEADS, length, depth) for x in (k, v))
    return plain(q, k, v)


def broadcast(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return plain(q, k.expand(-1, HEADS, -1, -1), v.expand(-1, HEADS, -1, -1))


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def distances(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], dtype=q.dtype).view(1, HEADS, 1, 1)
    places = torch.arange(k.shape[2])
    behind = places[None, :] - torch.arange(q.shape[2])[:, None]
    return plain(q, k, v, slopes * behind.to(q.dtype))


def added(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return plain(q, k, v, mask)


def kept(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, mask)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def causal_grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def masked_grouped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True, scale=0.3)


@dataclass(frozen=True)
class Form:
    """A function of q, k, v and maybe a mask; how many heads k and v have; the mask's shape."""

    function: Callable[..., Tensor]
    heads: int = HEADS
    mask: tuple[int, ...] = ()
    length: int = 53
    rows: int = ROWS
    bools: bool = False

    def inputs(self) -> list[Tensor]:
        torch.manual_seed(0)
        q = torch.randn(BATCH, HEADS, self.rows, DEPTH, dtype=torch.float16)
        k, v = (torch.randn(BATCH, self.heads, self.length, DEPTH, dtype=torch.float16)
                for _ in range(2))
        if not self.mask:
            return [q, k, v]
        seen = torch.rand(self.mask) < 0.7
        seen[..., 0] = True
        numbers = torch.randn(self.mask, dtype=torch.float16).masked_fill(~seen, -torch.inf)
        return [q, k, v, seen if self.bools else numbers]


FORMS = {
    "two heads repeated": Form(repeated, heads=2),
    "two heads expanded": Form(expanded, heads=2),
    "one head": Form(broadcast, heads=1),
    "grouped": Form(grouped, heads=2),
    "distances": Form(distances),
    "columns added": Form(added, mask=(BATCH, 1, 1, 53)),
    "all added": Form(added, mask=(BATCH, 1, ROWS, 53)),
    "heads added": Form(added, mask=(1, HEADS, ROWS, 53)),
    "columns kept": Form(kept, mask=(BATCH, 1, 1, 53), bools=True),
    "all kept": Form(kept, mask=(BATCH, 1, ROWS, 53), bools=True),
    "causal": Form(causal),
    "causal, grouped": Form(causal_grouped, heads=2),
    "numbers": Form(kept, mask=(BATCH, HEADS, ROWS, 53)),
    "numbers, grouped": Form(masked_grouped, heads=1, mask=(BATCH, 1, ROWS, 53)),
    "kept, grouped": Form(masked_grouped, heads=2, mask=(BATCH, 1, 1, 53), bools=True),
    "one row": Form(plain, rows=1),
    "one row, two heads": Form(repeated, heads=2, rows=1),
    "one row, grouped": Form(grouped, heads=2, rows=1),
    "one row, one head": Form(grouped, heads=1, rows=1),
    "one row, kept, grouped": Form(masked_grouped, heads=2, mask=(BATCH, 1, 1, 53), rows=1,
                                   bools=True),
}


def computed(
    form: Form, *, interpret: bool, run: RunKernel | None = None
) -> tuple[Array, list[KernelOp]]:
    """The result, and the kernels that made it."""
    model = in_memory(export(Function(form.function), form.inputs()))
    assert model is not None
    imported = load_model(model)
    options = TargetOptions("sm_90", interpret=interpret)
    context = TARGET.bind(options).context(imported.weights)
    for _ in lower(imported.module, context):
        pass
    kernels = [op for op in imported.module.body.block.ops if isinstance(op, KernelOp)]
    arrays = [x.numpy() for x in form.inputs()]
    [found] = interpret_host(imported.module, arrays, imported.weights, run)
    return found, kernels


def check(form: Form, found: Array) -> None:
    expected = form.function(*(x if x.dtype == torch.bool else x.double() for x in form.inputs()))
    np.testing.assert_allclose(found.astype(np.float64), expected.numpy(), rtol=0, atol=2e-3)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_one_kernel(form: Form) -> None:
    found, kernels = computed(form, interpret=False)
    check(form, found)
    made = [k for k in kernels if "_rows" not in k.sym_name.data]  # others copy odd rows of a mask
    assert len(made) == 1, "what is between the products, or what repeats heads, went to memory"


def test_heads_that_share_keys_are_rows() -> None:
    """A program of one row of each computes them by products of matrices."""
    for name, dots in (("one row, grouped", 2), ("one row", 0)):
        kernel = computed(FORMS[name], interpret=False)[1][0]
        assert emit_kernel(kernel).text.count("tl.dot") == dots


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("name", ["two heads repeated", "distances", "all kept",
                                  "one row, kept, grouped"])
def test_triton_source(name: str, interpreter: Interpreter) -> None:
    def run(kernel: Operation, buffers: Sequence[Array], sizes: Mapping[Symbol, int]) -> None:
        assert isinstance(kernel, KernelOp)
        interpreter.run(kernel, buffers, sizes)

    check(FORMS[name], computed(FORMS[name], interpret=True, run=run)[0])
