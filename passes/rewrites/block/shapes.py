"""Whether the buffers of a host function are as large as their types say, wherever they are used.

    %h = host.alloc : f32[n - 2]              strata.assume 2 <= n
    %v = host.view %x : f32[m]       -->      strata.assume m == 2*n          with %x: f32[n, 2]
    host.launch @k(%h) sizes(n)               (kernel @k takes f32[n - 2])

No dim is negative; views and copies keep the number of elements; what a launch or a call gives has
the shape that its kernel or function takes (`calls.py`), and a buffer that has a place in the arena
ends inside it. What sizes do not prove becomes an assumption at its node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from xdsl.ir import Operation, SSAValue

from dialects.block import KernelOp
from dialects.host import AllocOp, CopyOp, FuncOp, LaunchOp, ViewOp
from dialects.strata.control import ControlOp
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import BufferType
from dialects.symbolic.expr import Call, Expr, product
from dialects.symbolic.facts import is_plain
from dialects.symbolic.inequalities import Prover
from dialects.text.syntax import set_location
from passes.base import PassError
from passes.rewrites.block.calls import Calls, Claim


def check_shapes(function: FuncOp, kernels: Mapping[str, KernelOp], calls: Calls) -> None:
    """Assume what is not proven. Raises PassError where a launch cannot fit its kernel."""
    facts = facts_before(function, function)
    prover = Prover({}, facts)
    op = function.body.block.first_op
    while op is not None:
        if isinstance(op, AssumeOp):
            facts += facts_of(op)
            prover = Prover({}, facts)
        for claim in (*_claims(op, kernels, function), *calls.claims(op)):
            if not _holds(claim, prover):
                assume = AssumeOp.of(claim.left, claim.relation, claim.right)
                set_location(assume, op)
                function.body.block.insert_op_before(assume, op)
                facts += facts_of(assume)
                prover = Prover({}, facts)
        if isinstance(op, ControlOp):
            calls.open_results(op, partial(_holds, prover=prover))
        op = op.next_op


def facts_before(function: FuncOp, place: Operation) -> list[Expr]:
    """What is not negative when an operation of a function runs: dims of inputs, and what is
    assumed before; of sizes that are known from the start, all that is assumed."""
    facts = [s for a in function.input_arguments for s in _shape(a) if s.as_symbol is None]
    known, before = {*function.size_names}, place is not function
    for op in function.body.block.ops:
        before = before and op is not place
        if isinstance(op, AssumeOp) and (before or (
                op.symbols <= known and function.sym_name.data == "main")):
            facts += facts_of(op)
    return facts


def facts_of(op: AssumeOp) -> list[Expr]:
    """What an assumption says is not negative."""
    difference = op.right.data - op.left.data
    return [difference, -difference] if op.relation.data == "==" else [difference]


def _holds(claim: Claim, prover: Prover) -> bool:
    difference = claim.right - claim.left
    if not difference.terms:
        return True
    return prover.is_nonnegative(difference) and (
        claim.relation == "<=" or prover.is_nonnegative(-difference))


# ---------------------------------------------------------------------- what must hold
def _claims(
    op: Operation, kernels: Mapping[str, KernelOp], function: FuncOp
) -> Iterator[Claim]:
    """What must hold so that an operation stays inside its memory."""
    is_first = op is function.body.block.first_op
    for value in (*(function.output_arguments if is_first else ()), *op.results):
        yield from _claims_of_shape(value, op)
    match op:
        case AllocOp() if op.offset is not None and function.arena_bytes is not None:
            end = op.offset.data + op.type.byte_size
            if not _is_in_slot(function.arena_bytes - end):
                yield Claim(end, "<=", function.arena_bytes, op)
        case ViewOp():
            yield from _same_count(op.source, op.result, op)
        case CopyOp():
            yield from _same_count(op.source, op.target, op)
        case LaunchOp() if op.kernel.data in kernels:
            yield from _claims_of_launch(op, kernels[op.kernel.data])
        case _:
            pass


def _is_in_slot(left: Expr) -> bool:
    """Whether what is left of the arena behind a buffer is not negative by its form.

    A place of the arena is as long as the longest of what lies there, rounded up:
    256*((max(a, max(b, c)) + 255) floordiv 256) is at least a, b and c.
    """
    if is_plain(left):
        return True
    for monomial, factor in left.terms:
        call = monomial[0] if len(monomial) == 1 else None
        size = call.args[1].constant if isinstance(call, Call) and call.op == "floordiv" else None
        if not isinstance(call, Call) or not size or factor < 0 or factor % size:
            continue
        others = left - Expr(((monomial, factor),))
        if any(is_plain(others + least * (factor // size))
               for least in _of_maximum(call.args[0] - (size - 1))):
            return True
    return False


def _of_maximum(expr: Expr) -> Iterator[Expr]:
    """An expression, or what it is the maximum of."""
    call = expr.terms[0][0][0] if len(expr.terms) == 1 and len(expr.terms[0][0]) == 1 else None
    if isinstance(call, Call) and call.op == "max" and expr.terms[0][1] == 1:
        yield from (e for a in call.args for e in _of_maximum(a))
    else:
        yield expr


def _claims_of_shape(value: SSAValue, op: Operation) -> Iterator[Claim]:
    for size in _shape(value):
        if not is_plain(size):
            yield _not_negative(size, op)


def _not_negative(size: Expr, op: Operation) -> Claim:
    left = Expr(tuple((m, -c) for m, c in size.terms if c < 0))
    return Claim(left, "<=", size + left, op)


def _same_count(source: SSAValue, target: SSAValue, op: Operation) -> Iterator[Claim]:
    """Equal numbers of elements; dims that both have need not be multiplied out."""
    mine, others = list(_shape(source)), list(_shape(target))
    for size in _shape(source):
        if size in others:
            mine.remove(size)
            others.remove(size)
    if product(mine) != product(others):
        yield Claim(product(_shape(source)), "==", product(_shape(target)), op)


def _claims_of_launch(op: LaunchOp, kernel: KernelOp) -> Iterator[Claim]:
    sizes = dict(zip(kernel.size_names, op.sizes.data, strict=True))
    for size in sizes.values():
        if not is_plain(size):
            yield _not_negative(size, op)
    renames_nothing = all(e.as_symbol is s for s, e in sizes.items())
    for argument, buffer in zip(kernel.buffers, op.buffers, strict=True):
        assert isinstance(argument.type, BufferType) and isinstance(buffer.type, BufferType)
        if argument.type is buffer.type and renames_nothing:
            continue
        own = [e.substitute(sizes) for e in argument.type.shape]
        if len(own) != buffer.type.rank or argument.type.element != buffer.type.element:
            raise PassError("block-prove-bounds", [(
                "", f"kernel @{kernel.sym_name.data} takes {argument.type.short}, "
                    f"and is given {buffer.type.short}")])
        for mine, given in zip(own, buffer.type.shape, strict=True):
            if mine != given:
                yield Claim(mine, "==", given, op)


def _shape(value: SSAValue) -> tuple[Expr, ...]:
    return value.type.shape if isinstance(value.type, BufferType) else ()

