"""Operators that do the same with real and with imaginary parts, or are bilinear.

The importer for reals is called for each part. Reals among the operands have an imaginary part of
0 where parts are added, and are factors where they are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler.frontend.faults import Fault
from compiler.frontend.torch.complex import complex_op
from compiler.frontend.torch.complex.values import Complex, complex_of, is_complex, taken_apart
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import argument_count, importers
from compiler.frontend.torch.ops.elementwise import HALVES
from compiler.frontend.values import Value
from dialects.strata import types as t

_MOVES = tuple(f"aten.{name}" for name in (
    "view.default", "reshape.default", "_unsafe_view.default", "squeeze.default", "squeeze.dim",
    "squeeze.dims", "unsqueeze.default", "clone.default", "alias.default",
    "detach.default", "lift_fresh_copy.default", "lift_fresh.default",
    "permute.default", "transpose.int", "t.default", "numpy_T.default", "flip.default",
    "roll.default", "diagonal.default", "expand.default", "expand_as.default",
    "broadcast_to.default", "repeat.default", "repeat_interleave.self_int", "diff.default",
    "cat.default", "stack.default", "slice.Tensor", "select.int", "split.Tensor",
    "split_with_sizes.default", "split.sizes", "chunk.default", "unbind.int", "unfold.default",
    "slice_scatter.default", "select_scatter.default", "constant_pad_nd.default",
    "index_select.default", "gather.default", "index.Tensor", "_unsafe_index.Tensor",
    "scatter.src", "scatter_add.default", "index_put.default", "_unsafe_index_put.default",
    "index_copy.default", "index_add.default", "embedding.default", "tril.default",
    "triu.default", "where.self", "masked_fill.Scalar", "masked_fill.Tensor", "copy.default",
    "permute_copy.default", "transpose_copy.int", "t_copy.default", "diagonal_copy.default",
    "slice_copy.Tensor", "select_copy.int", "split_copy.Tensor", "unbind_copy.int",
    "unfold_copy.default", "diagonal_scatter.default", "diag_embed.default", "rot90.default",
    "take.default", "put.default"))
_SUMS = ("aten.sum.default", "aten.sum.dim_IntList", "aten.mean.default", "aten.mean.dim",
         "aten.cumsum.default", "aten.neg.default", "aten.trace.default")
_FILLS = tuple(f"aten.{name}" for name in (
    "zeros.default", "zeros_like.default", "new_zeros.default", "ones.default",
    "ones_like.default", "new_ones.default", "full.default", "full_like.default",
    "new_full.default", "fill.Scalar", "fill.Tensor", "zero.default", "scalar_tensor.default",
    "empty.memory_format", "empty_like.default", "new_empty.default", "empty_permuted.default",
    "empty_strided.default", "new_empty_strided.default", "scatter.value"))
_ONES = ("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
_PRODUCTS = ("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default",
             "aten.dot.default", "aten.linear.default", "aten.convolution.default",
             "aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
_WITH_BIAS = {"aten.linear.default": 2, "aten.convolution.default": 2, "aten.conv1d.default": 2,
              "aten.conv2d.default": 2, "aten.conv3d.default": 2}
_SCALED = ("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")


def _called(n: Node, given: Sequence[Any]) -> Any:
    """What the importer for reals makes."""
    function = importers().get(n.op)
    if function is None:
        raise Fault(f"{n.op} of complex numbers is not supported")
    return function(n, *given[:argument_count(function)])


def _each(n: Node, given: Sequence[Any], fix: Callable[[Any], Any] = lambda v: v) -> Any:
    """What the importer makes of real parts, and of imaginary parts."""
    re, im = (_called(n, [fix(taken_apart(v, imaginary)) for v in given])
              for imaginary in (False, True))
    if isinstance(re, Value):
        return Complex(re, im)
    return [Complex(*pair) for pair in zip(re, im, strict=True)]


@complex_op(*(name for name in _MOVES if name in importers()))
def moved(n: Node, *given: Any) -> Any:
    """Elements in other places. Operands that may be reals where others are complex are made so."""
    return _each(n, [_padded(n, k, v) for k, v in enumerate(given)])


_FILLING = {"aten.where.self": (1, 2), "aten.cat.default": (0,), "aten.stack.default": (0,),
            "aten.masked_fill.Scalar": (0, 2), "aten.masked_fill.Tensor": (0, 2),
            "aten.constant_pad_nd.default": (2,), "aten.scatter.src": (0, 3),
            "aten.scatter_add.default": (0, 3), "aten.index_put.default": (0, 2),
            "aten._unsafe_index_put.default": (0, 2), "aten.index_copy.default": (0, 3),
            "aten.index_add.default": (0, 3), "aten.slice_scatter.default": (0, 1),
            "aten.select_scatter.default": (0, 1), "aten.copy.default": (0, 1)}
"""Operator -> its arguments whose elements are among those of the result."""


def _padded(n: Node, number: int, value: Any) -> Any:
    if number not in _FILLING.get(n.op, ()) or (is_complex(value) and not isinstance(value, list)):
        return value
    if isinstance(value, list):
        return [complex_of(n, v, n.element) for v in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Value):
        return complex_of(n, value, n.element)
    return complex(value) if isinstance(value, (bool, int, float)) else value


@complex_op(*_SUMS[:-1])
def summed(n: Node, *given: Any) -> Complex:
    return _each(n, given)


@complex_op(*_FILLS)
def filled(n: Node, *given: Any) -> Complex:
    """Numbers whose imaginary part is 0, unless a complex number is given."""
    if n.op in _ONES:
        real = _called(n, given)
        return Complex(real, n.scalar(0.0, real.element).broadcast(real.shape))
    values = [complex(v) if k and type(v) in (int, float, bool) and (
        "full" in n.op or "fill" in n.op) else v for k, v in enumerate(given)]
    if n.op == "aten.scatter.value":
        values[3] = complex(values[3])
    if n.op == "aten.scalar_tensor.default":
        values[0] = complex(values[0])
    return _each(n, [complex_of(n, v, n.element) if isinstance(v, Value) and k and
                     n.op.startswith("aten.f") else v for k, v in enumerate(values)])


# ---------------------------------------------------------------------- products
@complex_op(*_PRODUCTS)
def product(n: Node, a: Any, b: Any, *others: Any) -> Complex:
    """The sum of products of parts, and the bias."""
    bias = None
    if n.op in _WITH_BIAS and others:
        bias, others = others[0], (None, *others[1:])
    wide = t.f32 if n.element in HALVES else n.element

    def of(x: Value, y: Value) -> Value:
        return _called(n, [x.cast(wide), y.cast(wide), *others])

    if isinstance(a, Complex) and isinstance(b, Complex):
        made = Complex(of(a.re, b.re) - of(a.im, b.im), of(a.re, b.im) + of(a.im, b.re))
    elif isinstance(a, Complex):
        made = Complex(of(a.re, b), of(a.im, b))
    else:
        made = Complex(of(a, b.re), of(a, b.im))
    return made if bias is None else made + _aligned(n, complex_of(n, bias, wide))


def _aligned(n: Node, bias: Complex) -> Complex:
    if n.op == "aten.linear.default":
        return bias
    return Complex(*(n.channelwise(v, len(n.shape)) for v in (bias.re, bias.im)))


@complex_op(*_SCALED)
def scaled_product(
    n: Node, c: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1
) -> Complex:
    """beta * c + alpha * (a @ b)."""
    element = t.f32 if n.element in HALVES else n.element
    x, y = (complex_of(n, v, element) for v in (a, b))
    made = Complex(x.re @ y.re - x.im @ y.im, x.re @ y.im + x.im @ y.re)
    if alpha != 1:
        made = made * complex_of(n, alpha, element)
    if beta == 0:
        return made
    return made + complex_of(n, c, element) * complex_of(n, beta, element)
