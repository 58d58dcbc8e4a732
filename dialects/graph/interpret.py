"""A plain interpreter: runs a `strata.func` whose operations have `evaluate`.

It serves any level over tensors: an operation needs `evaluate(context, *arrays)`, which returns
one array, or a sequence of arrays, one per result. Size symbols are bound from the shapes of the
arguments, and a value is dropped after its last use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from xdsl.ir import Operation, SSAValue

from dialects.expr import Expr
from dialects.func import FuncOp
from dialects.graph.base import EvaluationContext
from dialects.syntax import location_name
from dialects.types import Array, TensorType


class EvaluationError(Exception):
    """The inputs do not fit the function, or an operation failed on the values it met."""


def evaluate_func(
    func: FuncOp, inputs: Sequence[Array], context: EvaluationContext,
    alter: Callable[[Array], Array] | None = None,
) -> list[Array]:
    """The function's results. The inputs' shapes give the sizes, in addition to `context`'s.

    `alter`: what becomes of every result of every operation, to see how much outputs depend on it.
    Raises EvaluationError naming the input, or the operation and its model node.
    """
    arguments = func.body.block.args
    _check_inputs(func, inputs)
    types = [a.type for a in arguments if isinstance(a.type, TensorType)]
    given = {s: context.sizes[s] for s in func.caller_sizes if s in context.sizes}
    sizes = bind_sizes(types, inputs, func.input_names, given)
    context = replace(context, sizes={**context.sizes, **sizes})
    values: dict[SSAValue, Array] = dict(zip(arguments, inputs, strict=True))
    uses = Counter(operand for op in func.body.block.ops for operand in op.operands)
    for op in func.body.block.ops:
        if op is func.return_op:
            break
        results = _evaluate(op, [values[o] for o in op.operands], context)
        _store(op, results if alter is None else [alter(r) for r in results], values, uses)
    return [values[o] for o in func.return_op.operands]


def _store(
    op: Operation, results: Sequence[Array], values: dict[SSAValue, Array], uses: Counter[SSAValue]
) -> None:
    """Keep the results that are used, drop the operands that are not any more."""
    for operand in op.operands:
        uses[operand] -= 1
        if not uses[operand]:
            values.pop(operand, None)
    values.update((r, a) for r, a in zip(op.results, results, strict=True) if uses[r])


def _evaluate(op: Operation, operands: list[Array], context: EvaluationContext) -> Sequence[Array]:
    function: Callable[..., Array | Sequence[Array]] | None = getattr(op, "evaluate", None)
    if function is None:
        raise EvaluationError(f"{_place(op)} has no evaluation at this level")
    try:
        found = function(context, *operands)
    except (ValueError, IndexError, KeyError, ArithmeticError, MemoryError) as error:
        given = ", ".join(f"{a.dtype}{list(a.shape)}" for a in operands)
        raise EvaluationError(f"{_place(op)} failed on {given}: {error}") from error
    results = found if isinstance(found, list | tuple) else [np.asarray(found)]
    for result, array in zip(op.results, results, strict=True):
        _check_result(op, result, array, context)
    return results


def _check_result(
    op: Operation, result: SSAValue, array: Array, context: EvaluationContext
) -> None:
    """Sizes that inference took for equal, or for not 1, may turn out otherwise."""
    if not isinstance(result.type, TensorType):
        return
    if array.shape != context.shape(result.type) or array.dtype != result.type.dtype:
        sizes = _settings({name: context.sizes[name] for name in result.type.count.symbols})
        raise EvaluationError(
            f"{_place(op)} gives {array.dtype}{list(array.shape)}, its type is "
            f"{result.type.short}{f' with {sizes}' if sizes else ''}"
        )


def _place(op: Operation) -> str:
    node = location_name(op)
    return f"{op.name} (node {node!r})" if node else op.name


# ---------------------------------------------------------------------- inputs and sizes
def _check_inputs(func: FuncOp, inputs: Sequence[Array]) -> None:
    names = func.input_names
    if len(inputs) != len(names):
        raise EvaluationError(f"takes {len(names)} inputs ({', '.join(names)}), not {len(inputs)}")
    for name, argument, array in zip(names, func.body.block.args, inputs, strict=True):
        assert isinstance(argument.type, TensorType)
        if array.dtype != argument.type.dtype:
            raise EvaluationError(
                f"input {name!r} must be {argument.type.dtype}, not {array.dtype}"
            )


def bind_sizes(
    types: Sequence[TensorType], arrays: Sequence[Array], names: Sequence[str] = (),
    known: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The values of all size symbols, from the run-time shapes of the arguments.

    `known`: values that some have already.

    A dim that is a plain symbol binds it; one that is linear in a single unbound symbol (`2*h + 1`)
    is solved for it. Raises EvaluationError naming the input and dim where shapes contradict, or
    the symbol that nothing binds.
    """
    labels = names or [f"argument {k}" for k in range(len(types))]
    dims = [dim for type_, array, label in zip(types, arrays, labels, strict=True)
            for dim in _dims(type_, array, label)]
    sizes = dict(known or {})
    waiting = sorted(dims, key=lambda dim: dim[0].as_symbol is None)
    while waiting:
        later = [dim for dim in waiting if not _bind(*dim, sizes)]
        if len(later) == len(waiting):
            unbound = ", ".join(sorted(waiting[0][0].symbols - sizes.keys()))
            raise EvaluationError(f"{waiting[0][2]} does not determine the sizes {unbound}")
        waiting = later
    return sizes


def _dims(type_: TensorType, array: Array, label: str) -> list[tuple[Expr, int, str]]:
    """(expected size, size, where) per dim."""
    if array.ndim != type_.rank:
        raise EvaluationError(
            f"input {label!r} must have {type_.rank} dims, {type_.short}, not {array.shape}"
        )
    return [(expected, size, f"dim {k} of input {label!r}")
            for k, (expected, size) in enumerate(zip(type_.shape, array.shape, strict=True))]


def _bind(expected: Expr, size: int, place: str, sizes: dict[str, int]) -> bool:
    """Check or solve `expected == size`; False when it has several unbound symbols still."""
    rest = expected.substitute(sizes)
    unbound = sorted(rest.symbols)
    if len(unbound) > 1:
        return False
    if unbound:
        value = _solve(rest, unbound[0], size)
        if value is None:
            return False
        sizes[unbound[0]] = value
        rest = rest.substitute(sizes)
    if rest.constant != size:
        known = "" if expected.constant is not None else f" ({expected} with {_settings(sizes)})"
        raise EvaluationError(f"{place} is {size} but must be {rest}{known}")
    return True


def _solve(expected: Expr, symbol: str, size: int) -> int | None:
    """The value of the symbol that makes a linear expression the size, rounded down."""
    split = expected.linear([symbol])
    if split is None or symbol not in split[0]:
        return None
    factor, offset = split[0][symbol].constant, split[1].constant
    return None if not factor or offset is None else (size - offset) // factor


def _settings(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sorted(sizes.items()))
