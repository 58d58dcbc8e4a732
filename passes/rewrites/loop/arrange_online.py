"""Bring a joined kernel into the form in which its sums are online and cheap (online softmax).

    %s = nest (i, j, reduce d) ins(%q, %p) {q * p}       p = k * c:  s = q * k,  then s * c
    %x = nest (i, j) ins(%s[i, j]) {s * c, rounded}      x = s * (c * log2(e))
    %m = nest (i, reduce j) ins(%x[i, j]) outs(max)      m
    %e = nest (i, j) ins(%x, %m) {exp(x - m)}            e = exp2(x - m)
    %l = nest (i, reduce j) ins(%e[i, j]) outs(add)      l
    %p = nest (i, j) ins(%e, %l) {e / l, rounded}        p = e, rounded to the type of v
    %y = nest (i, d, reduce j) ins(%p, %v) {p * v}       t = the sum of p * v,  y = t / l

The weights of fully masked rows may be NaN, and a selection replaces them by 0. One that asks
whether they are NaN moves to the quotient. One that asks for the mask stays, unless the mask leaves
each row a score (`kept_anyway`); since l is then 0 or NaN, the quotient is 0 where t is. Each step
is skipped where it does not apply. Results differ in rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from xdsl.dialects import arith
from xdsl.dialects.arith import CMPF_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Attribute, Block, Region, SSAValue

from dialects.loop import KernelOp, NestOp, YieldOp, scalar_type
from dialects.strata.types import tensor
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.limits import kept_anyway
from passes.analyses.loop.online import argument_read, elementwise_maker, is_zero, running_maximum
from passes.rewrites.loop.base_two import use_base_two
from passes.rewrites.loop.computed import is_repetition
from passes.rewrites.loop.conditions import simplify_conditions, unconverted
from passes.rewrites.loop.delay_divisions import divide_result
from passes.rewrites.loop.delay_factors import delay_factors
from passes.rewrites.loop.nests import (
    Read,
    carry,
    clone_body,
    drop_unused,
    elementwise_on,
    gathered_inputs,
    has_remainders,
    inline_everywhere,
    plain_axes,
    reads_of,
    replace_nest,
    result_types,
    with_reads,
)


def arrange_online(kernel: KernelOp, rows: Collection[Symbol]) -> None:
    """Rewrite the nests of a kernel in place."""
    delay_factors(kernel, rows)
    inline_masks(kernel, rows)
    while (nest := next(filter(_rounds_for_readers, kernel.nests), None)):
        round_in_readers(nest)
    for nest in kernel.nests:
        drop_roundings(nest)
        simplify_conditions(nest)
    for nest in [n for n in kernel.nests if is_contraction(n)]:
        delay_division(nest, rows)
    for nest in [n for n in kernel.nests if is_contraction(n) and len(n.reduce_axes) == 1]:
        drop_idle_masks(nest)
    for nest in [n for n in kernel.nests if is_contraction(n) and running_maximum(n)]:
        narrow_factor(nest)
    for nest in [n for n in kernel.nests if n.is_elementwise]:
        use_base_two(nest)


# ---------------------------------------------------------------------- inputs
def inline_masks(kernel: KernelOp, rows: Collection[Symbol]) -> None:
    """Let readers compute what only widens or repeats elements, and masks over none of the rows."""
    while (nest := next((n for n in kernel.nests[::-1] if _is_inlined(n, rows)), None)):
        inline_everywhere(nest)


def _is_inlined(nest: NestOp, rows: Collection[Symbol]) -> bool:
    """Whether readers compute what a nest computes: it only widens or repeats elements, or it is a
    mask over none of the rows."""
    readers = [use.operation for r in nest.results for use in r.uses]
    if not all(isinstance(reader, NestOp) for reader in readers):
        return False
    if is_widening(nest) or is_repetition(nest):
        return True
    return nest.is_elementwise and not {*rows} & {a.name for a in nest.axes} and not any(
        isinstance(reader, NestOp) and is_contraction(reader) for reader in readers)


def is_widening(nest: NestOp) -> bool:
    """Whether a nest only moves elements and, at most, widens floats."""
    if not nest.is_elementwise or len(nest.inputs) != 1 or len(nest.results) != 1:
        return False
    value, [pad] = nest.yielded[0], nest.pad_values
    if isinstance(value.owner, arith.ExtFOp):
        value = value.owner.input
    return (value is nest.body.block.args[0] and pad is None
            and plain_axes(nest.output_maps[0]) is not None
            and not has_remainders(nest.input_maps[0]) and not gathered_inputs(nest.input_maps[0]))


# ---------------------------------------------------------------------- roundings
def _rounds_for_readers(nest: NestOp) -> bool:
    """Whether a nest rounds a value that only nests read, which can round it themselves."""
    readers = [use.operation for r in nest.results for use in r.uses]
    return nest.is_elementwise and isinstance(nest.yielded[0].owner, arith.TruncFOp) and all(
        isinstance(r, NestOp) and not is_contraction(r) for r in readers)


def round_in_readers(nest: NestOp) -> None:
    """Let readers do a nest's rounding; those that widen the value again can drop both casts."""
    [type_], rounding = result_types(nest), nest.yielded[0].owner
    assert isinstance(rounding, arith.TruncFOp)
    wide = with_reads(nest, reads_of(nest), [tensor(rounding.input.type, type_.shape)])
    last = wide.yielded[0].owner
    assert isinstance(last, arith.TruncFOp)
    last.result.replace_all_uses_with(last.input)
    drop_unused(wide)
    block = nest.parent_block()
    assert block is not None
    block.insert_op_before(wide, nest)
    rounded = elementwise_on(wide.results[0], type_.element,
                             lambda x: [arith.TruncFOp(x, type_.element)])
    nest.results[0].replace_all_uses_with(rounded.results[0])
    nest.detach()
    nest.erase()
    inline_everywhere(rounded)


def drop_roundings(nest: NestOp) -> None:
    """extf(truncf(x)) becomes x."""
    for op in list(nest.body.block.ops):
        source = op.operands[0].owner if isinstance(op, arith.ExtFOp) else None
        if isinstance(source, arith.TruncFOp) and source.input.type == op.results[0].type:
            op.results[0].replace_all_uses_with(source.input)
    drop_unused(nest)


# ---------------------------------------------------------------------- divisions
def delay_division(nest: NestOp, rows: Collection[Symbol]) -> None:
    """Divide a contraction's results instead of a factor whose divisor depends only on the rows."""
    for number, read in enumerate(reads_of(nest)):
        made = elementwise_maker(read)
        if made is None or not read.value.has_one_use() or not _is_linear(nest, number):
            continue
        maker, value = made
        guard = _nan_guard(value)
        division = _division_behind(maker, value if guard is None else guard.rhs, rows)
        if division is not None:
            select = _zero_where_zero if _is_selected(value) else None
            if guard is not None:
                guard.result.replace_all_uses_with(guard.rhs)
                drop_unused(maker)
                select = _zero_for_nothing
            _delay(nest, number, maker, division, select)
            return


def drop_idle_masks(nest: NestOp) -> None:
    """Leave out selections of weights that are 0 anyway where they make them 0."""
    for maker, value in filter(None, map(elementwise_maker, reads_of(nest))):
        choice = unconverted(value).owner
        while isinstance(choice, arith.SelectOp) and (
                kept := kept_anyway(nest, choice)) is not None:
            choice.result.replace_all_uses_with(kept)
            choice = kept.owner
        drop_unused(maker)


def _nan_guard(value: SSAValue) -> arith.SelectOp | None:
    """The selection that computes a value as x, or as 0 where x is NaN; None if there is none."""
    op = unconverted(value).owner
    if not isinstance(op, arith.SelectOp) or not is_zero(op.lhs):
        return None
    compare = op.cond.owner
    if not isinstance(compare, arith.CmpfOp):
        return None
    kind = CMPF_COMPARISON_OPERATIONS[compare.predicate.value.data]
    same = {unconverted(v) for v in (compare.lhs, compare.rhs, op.rhs)}
    return op if kind in ("uno", "une") and len(same) == 1 else None


def _is_selected(value: SSAValue) -> bool:
    """Whether a value that leads to a division is 0 where a condition says so."""
    op = unconverted(value).owner
    return isinstance(op, arith.SelectOp) and (is_zero(op.lhs) or is_zero(op.rhs))


def _is_linear(nest: NestOp, number: int) -> bool:
    """Whether a body is the product of an input, possibly converted, and something else."""
    product = nest.yielded[0].owner
    if not isinstance(product, arith.MulfOp):
        return False
    argument = nest.body.block.args[number]
    return any(unconverted(v) is argument for v in product.operands) and (
        len(list(argument.uses)) == 1)


def _division_behind(
    maker: NestOp, value: SSAValue, rows: Collection[Symbol]
) -> arith.DivfOp | None:
    """The division by a value of the rows to which a value is proportional."""
    match value.owner:
        case arith.TruncFOp() | arith.ExtFOp():
            return _division_behind(maker, value.owner.operands[0], rows)
        case arith.SelectOp() if is_zero(value.owner.rhs):
            return _division_behind(maker, value.owner.lhs, rows)
        case arith.SelectOp() if is_zero(value.owner.lhs):
            return _division_behind(maker, value.owner.rhs, rows)
        case arith.DivfOp() if isinstance(value.owner.rhs.owner, Block):
            divisor = argument_read(maker, value.owner.rhs)
            fixed = all(ex.symbols <= set(rows) for ex in divisor.map) and divisor.pad is None
            return value.owner if fixed and value.owner.rhs.has_one_use() else None
        case _:
            return None


def _delay(
    nest: NestOp, number: int, maker: NestOp, division: arith.DivfOp,
    select: Callable[[NestOp], None] | None,
) -> None:
    divisor = argument_read(maker, division.rhs)
    place = list(maker.body.block.args).index(division.rhs)  # type: ignore[arg-type]
    division.result.replace_all_uses_with(division.lhs)
    division.detach()
    division.erase()
    dividend = _without_input(maker, place)
    replace_nest(maker, dividend)
    reads = reads_of(nest)
    if dividend.yielded[0] is dividend.body.block.args[0] and len(dividend.inputs) == 1:
        reads[number] = Read(dividend.inputs[0], reads[number].map)
    total = with_reads(nest, reads)
    replace_nest(nest, total)
    quotient = divide_result(total, divisor)
    if select is not None:
        select(quotient)
    readers = [use.operation for use in quotient.results[0].uses]
    if len(readers) == 1 and isinstance(readers[0], NestOp) and readers[0].is_elementwise:
        inline_everywhere(quotient)
    if not dividend.results[0].uses:
        dividend.detach()
        dividend.erase()


def _zero_for_nothing(quotient: NestOp) -> None:
    """Make t / l 0 where l is not positive: there all weights are masked, and would be NaN."""
    _select(quotient, quotient.body.block.args[1], "ogt", kept=True)


def _zero_where_zero(quotient: NestOp) -> None:
    """Make t / l 0 where t is 0: there the selected weights are, even if l is 0 or NaN."""
    _select(quotient, quotient.body.block.args[0], "oeq", kept=False)


def _select(quotient: NestOp, value: SSAValue, comparison: str, *, kept: bool) -> None:
    """Keep a quotient where a value compares with 0, or where it does not, and else make it 0."""
    block = quotient.body.block
    last = block.last_op
    assert last is not None
    zero = arith.ConstantOp(FloatAttr(0.0, value.type))  # type: ignore[arg-type]
    condition = arith.CmpfOp(value, zero.result, comparison)
    nothing = arith.ConstantOp(FloatAttr(0.0, last.operands[0].type))  # type: ignore[arg-type]
    sides = (last.operands[0], nothing.result)
    chosen = arith.SelectOp(condition.result, *(sides if kept else sides[::-1]))
    block.insert_ops_before([zero, condition, nothing, chosen], last)
    last.operands[0] = chosen.result


def _without_input(nest: NestOp, number: int) -> NestOp:
    """The nest without one input, which its body does not use."""
    reads = reads_of(nest)
    del reads[number]
    old = [a for k, a in enumerate(nest.body.block.args) if k != number]
    block = Block(arg_types=[a.type for a in old])
    arguments = list(block.args)
    arguments.insert(number, nest.body.block.args[number])
    block.add_op(YieldOp.of(*clone_body(nest.body.block, block, arguments, {})))
    return carry(nest, NestOp.of(
        nest.axes, [r.value for r in reads], [r.map for r in reads],
        result_types(nest), nest.output_maps,
        combiners=nest.combiner_names, pads=[r.pad for r in reads], body=Region(block)))


# ---------------------------------------------------------------------- factors
def narrow_factor(nest: NestOp) -> None:
    """Round a computed factor to the type that the other factor is widened from."""
    product = nest.yielded[0].owner
    if not isinstance(product, arith.MulfOp):
        return
    for value, other in (tuple(product.operands), tuple(product.operands)[::-1]):
        if isinstance(other.owner, arith.ExtFOp) and isinstance(value.owner, Block) and isinstance(
                argument_read(nest, value).value.owner, NestOp):
            number = list(nest.body.block.args).index(value)  # type: ignore[arg-type]
            _round_input(nest, number, other.owner.input.type)
            return


def _round_input(nest: NestOp, number: int, element: Attribute) -> None:
    reads = reads_of(nest)
    rounded = elementwise_on(reads[number].value, element,
                             lambda x: [arith.TruncFOp(x, element)])
    reads[number] = Read(rounded.results[0], reads[number].map)
    block = Block(arg_types=[scalar_type(r.value) for r in reads])
    widened = arith.ExtFOp(block.args[number], nest.body.block.args[number].type)
    block.add_op(widened)
    arguments: list[SSAValue] = list(block.args)
    arguments[number] = widened.result
    block.add_op(YieldOp.of(*clone_body(nest.body.block, block, arguments, {})))
    replace_nest(nest, carry(nest, NestOp.of(
        nest.axes, [r.value for r in reads], [r.map for r in reads],
        result_types(nest), nest.output_maps,
        combiners=nest.combiner_names, pads=[r.pad for r in reads], body=Region(block))))
