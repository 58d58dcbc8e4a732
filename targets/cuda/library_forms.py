"""Which kernels a library has, and how a schedule says that it is called.

A kernel is a product in the library's sense if it is one contraction, plain factors of one type and
at most a bias of each column behind it. Its form names the dims of its buffers in order: rows `m`,
columns `n`, what is summed `k`, batch `b`.

    schedule<... | library = cublas.mk.nk.n.mn>       x @ w.T + bias

What such a kernel means stays what its nests say, so that every level executes; the tiles are those
of our own kernel, which runs where the library is missing or refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import arith
from xdsl.ir import BlockArgument, SSAValue

from dialects.block import KernelOp as BlockKernelOp
from dialects.expr import Expr
from dialects.loop import KernelOp, NestOp
from dialects.schedule import Schedule
from dialects.types import TensorType
from passes.loop.outline import is_contraction
from targets.base import TargetOptions
from targets.cuda.products import is_dot, is_plain
from targets.cuda.roles import roles_of, stored_by

CUBLAS = "cublas"
OPTION = "library"
ELEMENTS = ("f16", "bf16", "f32", "f8E4M3FN")
_FACTORS = {("mk", "kn"), ("mk", "nk"), ("km", "kn"), ("km", "nk")}


def form_of(kernel: BlockKernelOp | KernelOp) -> str | None:
    """The form of a kernel whose schedule says that a library is called, without its name."""
    if kernel.schedule is None:
        return None
    name, _, form = str(kernel.schedule.data.option(OPTION, "")).partition(".")
    return form if name == CUBLAS else None


def called(schedule: Schedule, form: str) -> Schedule:
    """The schedule of a kernel that calls cuBLAS instead, where it can."""
    plain = without_library(schedule)
    return replace(plain, options=(*plain.options, (OPTION, f"{CUBLAS}.{form}")))


def without_library(schedule: Schedule) -> Schedule:
    """The schedule of our own kernel."""
    return replace(schedule, options=tuple(o for o in schedule.options if o[0] != OPTION))


def product_form(kernel: KernelOp, options: TargetOptions) -> str | None:
    """The form of a kernel that cuBLAS may have; None for others."""
    product, *behind = kernel.nests
    if options.exact or not is_contraction(product) or not _is_product(product, options):
        return None
    arguments = list(kernel.body.block.args)
    used: list[tuple[SSAValue, Sequence[Expr]]] = list(
        zip(product.inputs, product.input_maps, strict=True))
    last = product
    if behind:
        [last, *more] = behind
        bias = _bias(last, product)
        if more or bias is None:
            return None
        used += bias
    if [v for v, _ in used] != arguments or list(kernel.yielded) != list(last.results):
        return None
    letters = _letters(kernel, product)
    dims = [_dims(m, letters) for m in (*(m for _, m in used), last.output_maps[0])]
    return ".".join(dims) if _is_form(dims) else None


def _is_product(nest: NestOp, options: TargetOptions) -> bool:
    """Whether cuBLAS has types and precision of a contraction."""
    elements = {str(v.type.element) for v in nest.inputs if isinstance(v.type, TensorType)}
    [element] = elements if len(elements) == 1 else [""]
    precise = element != "f32" or options.precision == "f32"
    return is_dot(nest) and is_plain(nest) and precise and element in ELEMENTS


def _letters(kernel: KernelOp, nest: NestOp) -> dict[str, str]:
    """The letter of each axis; none for axes of a role that several have."""
    roles = roles_of(nest, stored_by(kernel, nest))
    pairs = ((roles.batch, "b"), (roles.rows, "m"), (roles.columns, "n"), (roles.reduce, "k"))
    return {axes[0]: letter for axes, letter in pairs if len(axes) == 1}


def _dims(map_: Sequence[Expr], letters: dict[str, str]) -> str:
    """The letters of a map of plain axes; `?` for any other expression."""
    return "".join(letters.get(str(e), "?") for e in map_)


def _is_form(dims: Sequence[str]) -> bool:
    *factors, result = [d.removeprefix("b") for d in (*dims[:2], dims[-1])]
    batched = [d.startswith("b") for d in (*dims[:2], dims[-1])]
    ordered = tuple(sorted(factors, key=lambda d: "n" in d))
    return (len(set(batched)) == 1 and ordered in _FACTORS and result == "mn"
            and all(d == "n" for d in dims[2:-1]) and not (dims[2:-1] and batched[0]))


# ---------------------------------------------------------------------- what is behind the sums
def _bias(nest: NestOp, product: NestOp) -> list[tuple[SSAValue, Sequence[Expr]]] | None:
    """The bias that a nest adds to the sums, with its map: one or none; None for other nests."""
    if nest.is_reduction or len(nest.results) != 1:
        return None
    arguments = list(nest.body.block.args)
    sums = [a for a, v in zip(arguments, nest.inputs, strict=True) if v in product.results]
    value = _unrounded(nest.yielded[0])
    terms = [_unrounded(v) for v in value.owner.operands] if isinstance(
        value.owner, arith.AddfOp) else [value]
    others = [t for t in terms if t not in sums]
    if len(sums) != 1 or len(terms) - len(others) != 1 or set(others) != {
            a for a in arguments if a not in sums}:
        return None
    places = [arguments.index(t) for t in others if isinstance(t, BlockArgument)]
    return [(nest.inputs[k], nest.input_maps[k]) for k in places]


def _unrounded(value: SSAValue) -> SSAValue:
    """What is behind conversions between floats."""
    while isinstance(value.owner, (arith.TruncFOp, arith.ExtFOp)):
        value = value.owner.operands[0]
    return value


def library_notes(kernels: Sequence[BlockKernelOp]) -> list[str]:
    """`library cublas: @contract_2 mk.kn.mn, ...`: the kernels that call it; none without such."""
    forms = {k.sym_name.data: form for k in kernels if (form := form_of(k)) is not None}
    found = ", ".join(f"@{name} {form}" for name, form in forms.items())
    return [f"library {CUBLAS}: {found}"] if found else []
