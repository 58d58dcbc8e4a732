"""Check that the buffers of a host function are as large as their types say at every use.

    %h = host.alloc : f32[n - 2]              strata.assume 2 <= n
    %v = host.view %x : f32[m]       -->      strata.assume m == 2*n          with %x: f32[n, 2]
    host.launch @k(%h) sizes(n)               (kernel @k takes f32[n - 2])

No dim may be negative. Views and copies keep the number of elements. The buffers of a launch or a
call must have the shapes that the kernel or function expects (`calls.py`), and a buffer in the
arena must end inside it. What sizes do not prove becomes an assumption at its node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from xdsl.ir import Operation, SSAValue

from dialects.block import KernelOp
from dialects.host import AllocOp, CopyOp, FuncOp, LaunchOp, PartOp, ViewOp
from dialects.strata.control import ControlOp
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import BufferType, buffer_type
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.facts import is_plain
from dialects.symbolic.inequalities import Prover
from dialects.symbolic.remembered import remembered
from dialects.symbolic.size_products import product
from dialects.text.syntax import set_location
from passes.rewrites.block.calls import Calls, Claim


def check_shapes(function: FuncOp, kernels: Mapping[str, KernelOp], calls: Calls) -> None:
    """Assume what is not proven."""
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
    """Expressions that are not negative when an operation runs: dims of inputs and what earlier
    assumptions say. Of `main`, also all assumptions on sizes that are known from the start."""
    facts = [s for a in function.input_arguments for s in _shape(a) if s.as_symbol is None]
    known, before = {*function.size_names}, place is not function
    for op in function.body.block.ops:
        before = before and op is not place
        if isinstance(op, AssumeOp) and (before or (
                op.symbols <= known and function.sym_name.data == "main")):
            facts += facts_of(op)
    return facts


def facts_of(op: AssumeOp) -> list[Expr]:
    """The expressions that an assumption says are not negative."""
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
    """The claims under which an operation stays inside its memory."""
    is_first = op is function.body.block.first_op
    for value in (*(function.output_arguments if is_first else ()), *op.results):
        yield from _claims_of_shape(value, op)
    match op:
        case AllocOp() if op.offset is not None and function.arena_bytes is not None:
            end = op.offset.data + op.type.byte_size
            if not _is_in_slot(function.arena_bytes - end):
                yield Claim(end, "<=", function.arena_bytes, op)
        case PartOp():
            end = op.first.data + buffer_type(op.result).count
            yield Claim(end, "<=", buffer_type(op.source).count, op)
        case ViewOp():
            yield from _same_count(op.source, op.result, op)
        case CopyOp():
            yield from _same_count(op.source, op.target, op)
        case LaunchOp() if op.kernel.data in kernels:
            yield from _claims_of_launch(op, kernels[op.kernel.data])
        case _:
            pass


def _is_in_slot(left: Expr) -> bool:
    """Whether the part of the arena after a buffer is not negative, judging by its form.

    A slot of the arena is as long as the longest buffer that uses it, rounded up:
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
        if any(is_plain(others + least * (factor // size)) for least in _held(call)):
            return True
    return False


@remembered
def _held(slot: Call) -> tuple[Expr, ...]:
    """What a slot is at least as long as: `slot` is a sum with a divisor less 1, over it."""
    size = slot.args[1].constant or 1
    return tuple(_of_maximum(slot.args[0] - (size - 1)))


def _of_maximum(expr: Expr) -> Iterator[Expr]:
    """The operands of a maximum, or the expression itself."""
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
    """Source and target have the same number of elements; common dims are not multiplied out."""
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
        for mine, given in zip(own, buffer.type.shape, strict=True):
            if mine != given:
                yield Claim(mine, "==", given, op)


def _shape(value: SSAValue) -> tuple[Expr, ...]:
    return value.type.shape if isinstance(value.type, BufferType) else ()

