"""A plain interpreter: runs a `strata.func` whose operations have `evaluate`.

It works for any level on tensors: an operation needs `evaluate(context, *arrays)`, which returns
one array, or a sequence with one array per result. Size symbols are bound by the shapes of the
arguments, and a value is dropped after its last use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from xdsl.ir import Operation, SSAValue

from dialects.semantics.carriers import as_array
from dialects.semantics.evaluation import EvaluationContext, evaluation_of
from dialects.strata.assumptions import DataError, SizeError
from dialects.strata.binding import EvaluationError, bind_sizes, settings_text
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, TensorType
from dialects.text.syntax import location_name


def evaluate_func(
    func: FuncOp, inputs: Sequence[Array], context: EvaluationContext,
    alter: Callable[[Operation, Array], Array] | None = None,
) -> list[Array]:
    """The function's results. The inputs' shapes bind sizes, in addition to those in `context`.

    `alter` is applied to every result of every operation, to observe how sensitive outputs are to
    it, and is told the operation. Scalar constants are not altered: an exponent of 2, for example,
    must stay exact, because powers of negative numbers are undefined for exponents nearby. Raises
    EvaluationError, naming the input, or the operation and its model node, DataError for an index
    out of range or a division by zero (`strata.require`), and SizeError for sizes that the model
    must be compiled again for.
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
        results = context.carried(_evaluate(op, [values[o] for o in op.operands], context))
        if alter is not None and not _is_exact(op, results):
            results = [alter(op, r) for r in results]
        _store(op, results, values, uses)
    return [values[o] for o in func.return_op.operands]


def _is_exact(op: Operation, results: Sequence[Array]) -> bool:
    return not op.operands and all(r.size == 1 for r in results)


def _store(
    op: Operation, results: Sequence[Array], values: dict[SSAValue, Array], uses: Counter[SSAValue]
) -> None:
    """Store the results that have uses, and drop operands after their last use."""
    for operand in op.operands:
        uses[operand] -= 1
        if not uses[operand]:
            values.pop(operand, None)
    values.update((r, a) for r, a in zip(op.results, results, strict=True) if uses[r])


def _evaluate(op: Operation, operands: list[Array], context: EvaluationContext) -> Sequence[Array]:
    function = evaluation_of(op)
    if function is None:
        raise EvaluationError(f"{_place(op)} has no evaluation at this level")
    try:
        found = function(context, *operands)
    except (DataError, SizeError):
        raise
    except (ValueError, IndexError, KeyError, ArithmeticError, MemoryError) as error:
        given = ", ".join(f"{a.dtype}{list(a.shape)}" for a in operands)
        raise EvaluationError(f"{_place(op)} failed on {given}: {error}") from error
    return check_results(op, found, context)


def check_results(op: Operation, found: Any, context: EvaluationContext) -> Sequence[Array]:
    """The results of an evaluation as a list. Raises EvaluationError if they do not fit the op."""
    results = cast("Sequence[Array]", found) if isinstance(found, list | tuple) else [
        as_array(found)]
    if len(results) != len(op.results):
        raise EvaluationError(f"{_place(op)} gives {len(results)} arrays, and it has "
                              f"{len(op.results)} results")
    for result, array in zip(op.results, results, strict=True):
        _check_result(op, result, as_array(array), context)
    return results


def _check_result(
    op: Operation, result: SSAValue, array: Array, context: EvaluationContext
) -> None:
    """Check the result's shape: sizes that inference assumed equal may differ at run time."""
    if not isinstance(result.type, TensorType):
        return
    if array.shape != context.shape(result.type) or array.dtype != result.type.dtype:
        sizes = settings_text({name: context.sizes[name] for name in result.type.count.symbols})
        raise EvaluationError(
            f"{_place(op)} gives {array.dtype}{list(array.shape)}, its type is "
            f"{result.type.short}{f' with {sizes}' if sizes else ''}"
        )


def _place(op: Operation) -> str:
    node = location_name(op)
    return f"{op.name} (node {node!r})" if node else op.name


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
