"""Which kernels are products that cuBLAS can compute.

Such a kernel is one contraction of plain factors of one type. After that it may add a bias per
column and a matrix, and apply a ReLU. The letters of the dims are rows `m`, columns `n`, the summed
axis `k`, and batch `b`.

    x @ w.T                          mk.nk.mn
    relu(x @ w.T + bias + residual)  mk.nk.n.mn.mn.relu
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.loop import KernelOp, NestOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.pairs import pair_of
from targets.cuda.libraries.epilogues import elements_of, epilogue_of, used_by
from targets.cuda.libraries.words import CUBLAS, RELU
from targets.cuda.scheduling.products.rules import is_dot, is_plain
from targets.cuda.scheduling.roles import roles_of, stored_by
from targets.options import TargetOptions

_ELEMENTS = ("f16", "bf16", "f32", "f8E4M3FN")
_FACTORS = {("mk", "kn"), ("mk", "nk"), ("km", "kn"), ("km", "nk")}


def product_form(kernel: KernelOp, options: TargetOptions) -> str | None:
    """The form of a kernel that cuBLAS may compute; None for others."""
    product = kernel.nests[0]
    if not is_contraction(product) or pair_of(kernel) or not _is_product(product, options):
        return None
    epilogue = epilogue_of(kernel)
    maps = None if epilogue is None else used_by(kernel, product, epilogue)
    if epilogue is None or epilogue.scale is not None or maps is None or not (
            elements_of(kernel) <= {*_ELEMENTS}):
        return None
    letters = _letters(kernel, product)
    dims = [_dims(v, m, letters, kernel) for v, m in zip(
        (*kernel.body.block.args, kernel.yielded[0]), (*maps, epilogue.result), strict=True)]
    if not _is_form(dims) or not _adds_alike(kernel, dims):
        return None
    return ".".join((CUBLAS, *dims, *[RELU] * epilogue.relu))


def _is_product(nest: NestOp, options: TargetOptions) -> bool:
    """Whether cuBLAS supports the types and the precision of a contraction."""
    elements = {str(v.type.element) for v in nest.inputs if isinstance(v.type, TensorType)}
    [element] = elements if len(elements) == 1 else [""]
    precise = element != "f32" or options.precision == "f32"
    return is_dot(nest) and is_plain(nest) and precise and element in _ELEMENTS


def _letters(kernel: KernelOp, nest: NestOp) -> dict[Symbol, str]:
    """The letter of each axis; none for the axes of a role that has several."""
    roles = roles_of(nest, stored_by(kernel, nest))
    pairs = ((roles.batch, "b"), (roles.rows, "m"), (roles.columns, "n"), (roles.reduce, "k"))
    return {axes[0]: letter for axes, letter in pairs if len(axes) == 1}


def _dims(
    value: SSAValue, map_: Sequence[Expr], letters: dict[Symbol, str], kernel: KernelOp
) -> str:
    """The letters of a map of plain axes. `?` stands for any other expression, and for an axis that
    covers only a part of a dim, since a library computes whole matrices."""
    assert isinstance(value.type, TensorType)
    return "".join(letters.get(axis, "?") if (axis := e.as_symbol) and kernel.axes.get(axis) == size
                   else "?" for e, size in zip(map_, value.type.shape, strict=True))


def _is_form(dims: Sequence[str]) -> bool:
    factors = [d for d in dims[:-1] if "k" in d]
    added = sorted(d for d in dims[:-1] if "k" not in d)
    batched = {d.startswith("b") for d in (*factors, dims[-1])}
    plain = sorted((d.removeprefix("b") for d in factors), key=lambda d: "n" in d)
    return (len(batched) == 1 and tuple(plain) in _FACTORS and dims[-1].removeprefix("b") == "mn"
            and added in ([], *([["mn"], ["n"], ["mn", "n"]] if not any(batched) else ())))


def _adds_alike(kernel: KernelOp, dims: Sequence[str]) -> bool:
    """Whether the added matrix has the result's type."""
    result = kernel.yielded[0].type
    return all(v.type == result for v, d in zip(kernel.body.block.args, dims, strict=False)
               if d == dims[-1])
