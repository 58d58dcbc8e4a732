"""Rewrite masks in a nest's body as selections, with conditions as simple as possible.

    x + select(c, 0, -inf)                  ->  select(c, x, -inf)
    select(a and b, x, y)                   ->  select(a, select(b, x, y), y)
    not (i <= j)                            ->  i > j
    select(c, 1, 0) == 0                    ->  not c
    select(c, x, x + -inf)                  ->  select(c, x, -inf)
    (1 - select(c, 1, 0)) * n               ->  select(c, 0, n)

A mask can be written in many ways, but `passes.analyses.loop.limits` can only tell how far rows
reach from one of them: selections, the outermost of which compares indices. Results stay the same
except for the sign of zeros, and for NaN where a large negative number absorbs x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from dialects.loop import NestOp, YieldOp
from dialects.semantics.scalar import evaluate_body
from dialects.strata.types import i1
from passes.analyses.loop.limits import LOW, compared_indices
from passes.analyses.loop.numbers import constant, float_of
from passes.rewrites.loop.nests import drop_unused

ABSORBS = -1e30
"""Adding a score to a number as low as this gives that number again."""

_INVERSE = {"eq": "ne", "ne": "eq", "slt": "sge", "sge": "slt", "sle": "sgt", "sgt": "sle",
            "ult": "uge", "uge": "ult", "ule": "ugt", "ugt": "ule"}
_FOLDED = (
    arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.CmpfOp, arith.CmpiOp, arith.AddiOp,
    arith.SubiOp, arith.MuliOp, arith.ExtFOp, arith.TruncFOp, arith.ExtUIOp, arith.ExtSIOp,
    arith.TruncIOp, arith.UIToFPOp, arith.SIToFPOp)

Rule = Callable[[Operation], Sequence[Operation] | SSAValue | None]


def simplify_conditions(nest: NestOp) -> None:
    """Rewrite a body in place until no rule applies."""
    while any(_apply(op, rule) for op in list(nest.body.block.ops) for rule in _RULES
              if op.parent is not None):
        drop_unused(nest)


def _apply(op: Operation, rule: Rule) -> bool:
    found = rule(op)
    if found is None:
        return False
    if not isinstance(found, SSAValue):
        block = op.parent_block()
        assert block is not None
        for new in found:
            new.location = op.location
        block.insert_ops_before(list(found), op)
        found = found[-1].results[0]
    op.results[0].replace_all_uses_with(found)
    op.detach()
    op.erase()
    return True


# ---------------------------------------------------------------------- truth values
def _invert(op: Operation) -> Sequence[Operation] | SSAValue | None:
    """not (i < j) is i >= j; not not c is c; not (a and b) is (not a) or (not b)."""
    condition = _inverted(op)
    inner = None if condition is None else condition.owner
    match inner:
        case arith.CmpiOp():
            name = CMPI_COMPARISON_OPERATIONS[inner.predicate.value.data]
            return [arith.CmpiOp(inner.lhs, inner.rhs, _INVERSE[name])]
        case arith.XOrIOp() if (again := _inverted(inner)) is not None:
            return again
        case arith.AndIOp() | arith.OrIOp():
            other = arith.OrIOp if isinstance(inner, arith.AndIOp) else arith.AndIOp
            first, second = _not(inner.lhs), _not(inner.rhs)
            return [*first, *second, other(first[-1].results[0], second[-1].results[0])]
        case _:
            return None


def _inverted(op: Operation) -> SSAValue | None:
    """The value that an operation negates; None if it is not a negation."""
    if not isinstance(op, arith.XOrIOp) or op.result.type != i1:
        return None
    return next((x for x, one in ((op.lhs, op.rhs), (op.rhs, op.lhs)) if _truth(one)), None)


def _truth(value: SSAValue) -> bool | None:
    """The value of a constant truth value; None if it is not constant."""
    if not isinstance(value.owner, arith.ConstantOp) or value.type != i1:
        return None
    assert isinstance(value.owner.value, IntegerAttr)
    return value.owner.value.value.data != 0


def _not(value: SSAValue) -> list[Operation]:
    true = constant(True, i1)
    return [true, arith.XOrIOp(value, true.result)]


def _choose_truth(op: Operation) -> Sequence[Operation] | SSAValue | None:
    """select(c, true, false) is c; select(c, x, false) is c and x; ..."""
    if not isinstance(op, arith.SelectOp) or op.result.type != i1:
        return None
    match _truth(op.lhs), _truth(op.rhs):
        case True, False:
            return op.cond
        case False, True:
            return _not(op.cond)
        case True, _:
            return [arith.OrIOp(op.cond, op.rhs)]
        case _, False:
            return [arith.AndIOp(op.cond, op.lhs)]
        case False, _:
            return [*(no := _not(op.cond)), arith.AndIOp(no[-1].results[0], op.rhs)]
        case _, True:
            return [*(no := _not(op.cond)), arith.OrIOp(no[-1].results[0], op.lhs)]
        case _:
            return None


def _choose_number(op: Operation) -> Sequence[Operation] | None:
    """A truth value as a number is select(c, 1, 0)."""
    if not isinstance(op, arith.UIToFPOp | arith.ExtUIOp) or op.input.type != i1:
        return None
    if isinstance(op.input.owner, arith.ConstantOp):
        return None
    one, zero = (constant(x, op.result.type) for x in (1, 0))
    return [one, zero, arith.SelectOp(op.input, one.result, zero.result)]


# ---------------------------------------------------------------------- selections
def _fold(op: Operation) -> Sequence[Operation] | None:
    """f(select(c, 1, 2), 3) is select(c, f(1, 3), f(2, 3))."""
    if not isinstance(op, _FOLDED):
        return None
    choices = [v.owner for v in op.operands if isinstance(v.owner, arith.SelectOp)]
    if not choices or not all(_same_condition(c, choices[0]) for c in choices):
        return None
    sides: list[list[arith.ConstantOp]] = [[], []]
    for value in op.operands:
        maker = value.owner
        pair = (maker.lhs.owner, maker.rhs.owner) if isinstance(maker, arith.SelectOp) else (
            maker, maker)
        for side, number in zip(sides, pair, strict=True):
            if not isinstance(number, arith.ConstantOp):
                return None
            side.append(number)
    first, second = (_folded(op, side) for side in sides)
    return [first, second, arith.SelectOp(choices[0].cond, first.result, second.result)]


def _same_condition(a: arith.SelectOp, b: arith.SelectOp) -> bool:
    """Whether two selections use the same condition, or equivalent comparisons."""
    if a.cond is b.cond:
        return True
    mine, other = compared_indices(a.cond), compared_indices(b.cond)
    return mine is not None and mine == other


def _folded(op: Operation, operands: Sequence[arith.ConstantOp]) -> arith.ConstantOp:
    block = Block()
    copies = [c.clone() for c in operands]
    result = op.clone(dict(zip(op.operands, (c.result for c in copies), strict=True)))
    block.add_ops([*copies, result, YieldOp.of(result.results[0])])
    [number] = evaluate_body(block, [])
    return constant(number.item(), op.results[0].type)


def _split(op: Operation) -> Sequence[Operation] | None:
    """select(a and b, x, y) is select(a, select(b, x, y), y), where a or b compares indices."""
    if not isinstance(op, arith.SelectOp):
        return None
    both = op.cond.owner
    if not isinstance(both, arith.AndIOp | arith.OrIOp) or op.result.type == i1:
        return None
    outer, inner = both.lhs, both.rhs
    if compared_indices(outer) is None:
        outer, inner = inner, outer
    if compared_indices(outer) is None:
        return None
    last = arith.SelectOp(inner, op.lhs, op.rhs)
    if isinstance(both, arith.AndIOp):
        return [last, arith.SelectOp(outer, last.result, op.rhs)]
    return [last, arith.SelectOp(outer, op.lhs, last.result)]


# ---------------------------------------------------------------------- masks that are added
def _select_mask(op: Operation) -> Sequence[Operation] | None:
    """x + select(c, 0, n) is select(c, x, n) for an n that absorbs x, else select(c, x, x + n)."""
    if not isinstance(op, arith.AddfOp):
        return None
    for x, mask in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        if isinstance(unconverted(mask).owner, arith.SelectOp) and (
                added := _added(x, mask, op.result.type)) is not None:
            return added[1]
    return None


def _absorb(op: Operation) -> SSAValue | None:
    """x + n is n for an n that absorbs x."""
    if not isinstance(op, arith.AddfOp) or isinstance(op.lhs.owner, arith.ConstantOp):
        return None
    number = float_of(op.rhs)
    return op.rhs if number is not None and number <= ABSORBS else None


def _added(
    x: SSAValue, mask: SSAValue, element: Attribute
) -> tuple[SSAValue, list[Operation]] | None:
    """x + mask and the operations that compute it, if the mask selects among 0 and low numbers."""
    mask = unconverted(mask)
    if isinstance(choice := mask.owner, arith.SelectOp):
        first, second = (_added(x, side, element) for side in (choice.lhs, choice.rhs))
        if first is None or second is None:
            return None
        selected = arith.SelectOp(choice.cond, first[0], second[0])
        return selected.result, [*first[1], *second[1], selected]
    number = float_of(mask)
    if number is None or (number and number > LOW):
        return None
    if not number:
        return x, []
    low = constant(number, element)
    if number <= ABSORBS:
        return low.result, [low]
    total = arith.AddfOp(x, low.result)
    return total.result, [low, total]


def unconverted(value: SSAValue) -> SSAValue:
    """The float that a value was widened or rounded from."""
    while isinstance(value.owner, arith.ExtFOp | arith.TruncFOp):
        value = value.owner.operands[0]
    return value


_RULES: tuple[Rule, ...] = (
    _invert, _choose_truth, _choose_number, _fold, _split, _select_mask, _absorb)
