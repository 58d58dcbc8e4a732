"""Verification of operations by code that is prepared once per class.

xDSL verifies an operation by interpreting its definition. Here a definition becomes functions that
tell whether an operation is certainly accepted. What they do not accept, or do not know, xDSL's
verifier verifies again, so that errors are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias, cast

from xdsl.dialects.builtin import ArrayAttr, ArrayOfConstraint, DenseArrayBase, i32
from xdsl.ir import Attribute, ErasedSSAValue, Operation, Region
from xdsl.irdl import IRDLOperation, OpDef
from xdsl.irdl.constraints import (
    AllOf,
    AnyAttr,
    AnyOf,
    AttrConstraint,
    BaseAttr,
    EqAttrConstraint,
    MessageConstraint,
    ParamAttrConstraint,
    RangeLengthConstraint,
    RangeOf,
    VarConstraint,
)
from xdsl.irdl.operations import (
    AttrSizedOperandSegments,
    AttrSizedSegments,
    OptionalDef,
    OptPropertyDef,
    VariadicDef,
)
from xdsl.traits import IsolatedFromAbove, IsTerminator, NoTerminator, OpTrait
from xdsl.utils.exceptions import VerifyException

from dialects.walking import listed, walked

Bound: TypeAlias = dict[str, Attribute]
"""What the variables of a definition's constraints stand for in an operation."""
Accepts: TypeAlias = "Callable[[Attribute, Bound], bool] | None"
"""Whether a constraint certainly holds; None where it always does."""


# ---------------------------------------------------------------------- modules
def verify(op: Operation) -> None:
    """The same as `op.verify()`: an operation and all inside it, innermost first."""
    for region in op.regions:
        _verify_region(region)
    if not _holds(op):
        op.verify(verify_nested_ops=False)


def _verify_region(region: Region) -> None:
    block = region.first_block
    if block is None or block is not region.last_block or block.parent is not region or (
            block.first_op is None):
        region.verify()
        return
    ops = listed(block)
    if not all([op.parent is block for op in ops]):
        region.verify()
        return
    for op in ops:
        verify(op)


def _holds(op: Operation) -> bool:
    """Whether an operation whose regions are verified is certainly valid."""
    if op._successors or (  # pyright: ignore[reportPrivateUsage]
            op.next_op is None and not _ends_well(op)):
        return False
    for operand in op._operands:  # pyright: ignore[reportPrivateUsage]
        if type(operand) is ErasedSSAValue:
            return False
    try:
        return _check_of(type(op))(op)
    except VerifyException:
        return False


def _ends_well(op: Operation) -> bool:
    """Whether an operation that ends a block may do so."""
    block = op.parent
    if block is None or block.last_op is not op or block.parent is None:
        return True
    if block.parent.first_block is not block.parent.last_block:
        return False
    parent = block.parent.parent
    return parent is None or _has(type(parent), NoTerminator) or _has(type(op), IsTerminator)


@cache
def _has(kind: type[Operation], trait: type[OpTrait]) -> bool:
    return kind.has_trait(trait)


@cache
def _check_of(kind: type[Operation]) -> Callable[[Any], bool]:
    """Whether operations of a class are certainly valid, apart from their place. It may raise."""
    own_check = _own_check(kind) if issubclass(kind, IRDLOperation) else None
    accepts = None if own_check is None else verifier(cast(Any, kind).get_irdl_definition())

    def check(op: Operation) -> bool:
        if accepts is None or own_check is None or not accepts(op):
            op.verify_()
        else:
            own_check(op)
        return True

    return check


def _own_check(kind: type[Operation]) -> Callable[[Any], None] | None:
    """What a class of xDSL checks besides its definition; None where that is not known.

    xDSL's `verify_` is a closure of both.
    """
    verify_: Any = kind.verify_
    parts = dict(zip(verify_.__code__.co_freevars, verify_.__closure__ or (), strict=True))
    if parts.keys() == {"op_def"}:
        return lambda op: None
    return parts["custom_verify"].cell_contents if parts.keys() == {
        "custom_verify", "op_def"} else None


# ---------------------------------------------------------------------- definitions
def verifier(definition: OpDef) -> Callable[[Operation], bool] | None:
    """Whether the definition certainly accepts an operation; None for definitions with more than
    one variadic, or with constraints that are not on one type each."""
    segmented = [o for o in definition.options if isinstance(o, AttrSizedSegments)]
    if definition.successors or definition.attributes:
        return None
    operands = _segments(definition, segmented) if segmented else _operands(definition)
    results = _list(definition.results)
    regions = _count_of_regions(definition)
    if operands is None or results is None or regions is None:
        return None
    properties = {name: (_accepts(d.constr), isinstance(d, OptPropertyDef))
                  for name, d in definition.properties.items()}
    is_isolated = any(isinstance(t, IsolatedFromAbove) for t in definition.traits)
    traits = [t for t in definition.traits if type(t).verify is not OpTrait.verify
              and not isinstance(t, IsolatedFromAbove)]

    def accepts(op: Operation) -> bool:
        if op._successors or len(op.regions) != regions:  # pyright: ignore[reportPrivateUsage]
            return False
        for region in op.regions:
            if region.first_block is None or region.first_block is not region.last_block:
                return False
        bound: Bound = {}
        if not operands(op, bound) or not results([v.type for v in op.results], bound) or not _fit(
                op.properties, properties, bound):
            return False
        if is_isolated and not _uses_own_values(op):
            return False
        for trait in traits:
            trait.verify(op)
        return True

    return accepts


def _uses_own_values(op: Operation) -> bool:
    """Whether what is inside uses only values that are defined inside."""
    every = walked(op)
    inner = every[1:]
    known: set[int] = set()
    for each in every:
        if each is not op:
            known.update(map(id, each.results))
        for region in each.regions:
            block = region.first_block
            while block is not None:
                known.update(map(id, block.args))
                block = block.next_block
    return all([known.issuperset(map(id, each._operands))  # pyright: ignore[reportPrivateUsage]
                for each in inner])


def _operands(definition: OpDef) -> Callable[[Operation, Bound], bool] | None:
    """Whether an operation's operands satisfy the definition; None for definitions as above."""
    accepts = _list(definition.operands)
    return None if accepts is None else lambda op, bound: accepts(
        [v.type for v in op._operands], bound)  # pyright: ignore[reportPrivateUsage]


def _segments(
    definition: OpDef, options: Sequence[AttrSizedSegments]
) -> Callable[[Operation, Bound], bool] | None:
    """Whether there are as many operands as a property says; None if more than their number is
    defined, or if it says that of anything else."""
    [option, *others] = options
    if others or not isinstance(option, AttrSizedOperandSegments) or not option.as_property or any(
            not isinstance(d, VariadicDef) or isinstance(d, OptionalDef)
            or not isinstance(_of_range(d.constr, True), AnyAttr) for _, d in definition.operands):
        return None
    name, count = option.attribute_name, len(definition.operands)

    def accept(op: Operation, bound: Bound) -> bool:
        found = op.properties.get(name)
        if not isinstance(found, DenseArrayBase) or cast(Any, found).elt_type != i32:
            return False
        sizes = cast(Any, found).get_values()
        return len(sizes) == count and min(sizes) >= 0 and sum(sizes) == len(
            op._operands)  # pyright: ignore[reportPrivateUsage]

    return accept


def _fit(
    given: dict[str, Attribute], defined: dict[str, tuple[Accepts, bool]], bound: Bound
) -> bool:
    """Whether properties are the defined ones, and satisfy their constraints."""
    missing = len(defined)
    for name, value in given.items():
        if name not in defined:
            return False
        missing -= 1
        accepts, _ = defined[name]
        if accepts is not None and not accepts(value, bound):
            return False
    return not missing or all(
        optional or name in given for name, (_, optional) in defined.items())


def _list(
    defs: Sequence[tuple[str, Any]]
) -> Callable[[Sequence[Attribute], Bound], bool] | None:
    """Whether types satisfy a list of definitions with at most one variadic."""
    constraints = [_of_range(d.constr, isinstance(d, VariadicDef)) for _, d in defs]
    variadic = [k for k, (_, d) in enumerate(defs) if isinstance(d, VariadicDef)]
    if None in constraints or len(variadic) > 1:
        return None
    accepts = [_accepts(c) for c in constraints if c is not None]
    if not variadic:
        return _each(accepts)
    place, is_optional = variadic[0], isinstance(defs[variadic[0]][1], OptionalDef)

    def accept(types: Sequence[Attribute], bound: Bound) -> bool:
        count = len(types) - len(accepts) + 1
        if count < 0 or (is_optional and count > 1):
            return False
        each = [*accepts[:place], *[accepts[place]] * count, *accepts[place + 1:]]
        return all([a is None or a(type_, bound) for a, type_ in zip(each, types, strict=True)])

    return accept


def _each(accepts: Sequence[Accepts]) -> Callable[[Sequence[Attribute], Bound], bool]:
    """Whether types satisfy one constraint each."""
    count = len(accepts)
    known = [(k, a) for k, a in enumerate(accepts) if a is not None]

    def accept(types: Sequence[Attribute], bound: Bound) -> bool:
        return len(types) == count and all([each(types[k], bound) for k, each in known])

    return accept


def _of_range(constraint: Any, may_be_long: bool) -> AttrConstraint[Attribute] | None:
    """The constraint on each type of a range; None for another kind of range."""
    if isinstance(constraint, RangeLengthConstraint) and not may_be_long:
        constraint = cast(Any, constraint).constraint
    return cast(Any, constraint).constr if isinstance(constraint, RangeOf) else None


def _count_of_regions(definition: OpDef) -> int | None:
    """How many regions there are, of one block each; None if there may be others."""
    for _, region in definition.regions:
        entry = _of_range(region.entry_args, True)
        if isinstance(region, VariadicDef) or not isinstance(entry, AnyAttr):
            return None
    return len(definition.regions)


# ---------------------------------------------------------------------- constraints
def _accepts(constraint: Any) -> Accepts:
    """Whether a constraint certainly holds. What is not sure is left to xDSL."""
    if isinstance(constraint, MessageConstraint):
        return _accepts(cast(Any, constraint).constr)
    if isinstance(constraint, AnyAttr):
        return None
    if isinstance(constraint, BaseAttr):
        base: type[Attribute] = cast(Any, constraint).attr
        return lambda value, bound: isinstance(value, base)
    if isinstance(constraint, EqAttrConstraint):
        wanted: Attribute = cast(Any, constraint).attr
        return lambda value, bound: value is wanted or value == wanted
    if isinstance(constraint, ArrayOfConstraint):
        return _elements(_of_range(cast(Any, constraint).elem_range_constraint, True))
    if isinstance(constraint, VarConstraint):
        return _variable(cast(Any, constraint).name, _accepts(cast(Any, constraint).constraint))
    if isinstance(constraint, AnyOf):
        return _alternatives(cast(Any, constraint).attr_constrs)
    if isinstance(constraint, AllOf):
        return _together([_accepts(c) for c in cast(Any, constraint).attr_constrs])
    if isinstance(constraint, ParamAttrConstraint):
        return _parameters(cast(Any, constraint).base_attr,
                           [_accepts(c) for c in cast(Any, constraint).param_constrs])
    return lambda value, bound: False


def _elements(each: AttrConstraint[Attribute] | None) -> Accepts:
    """An array whose elements satisfy a constraint; None for elements that nothing is known of."""
    if each is None:
        return lambda value, bound: False
    accepts = _accepts(each)
    return lambda value, bound: isinstance(value, ArrayAttr) and (accepts is None or all(
        [accepts(element, bound) for element in cast(Any, value).data]))


def _variable(name: str, accepts: Accepts) -> Accepts:
    """All values of one name are equal, and the first satisfies the constraint.

    An alternative that fails may have bound the name. Then only equal values are accepted, which
    the alternative that holds would also have bound.
    """
    def same(value: Attribute, bound: Bound) -> bool:
        known = bound.get(name)
        if known is not None:
            return known is value or known == value
        if accepts is not None and not accepts(value, bound):
            return False
        bound[name] = value
        return True

    return same


def _alternatives(constraints: Sequence[Any]) -> Accepts:
    """Any of several constraints; classes are compared first, and at once."""
    bases: tuple[type[Attribute], ...] = tuple(
        cast(Any, c).attr for c in constraints if isinstance(c, BaseAttr))
    others = [_accepts(c) for c in constraints if not isinstance(c, BaseAttr)]
    if not others:
        return lambda value, bound: isinstance(value, bases)
    return lambda value, bound: isinstance(value, bases) or any(
        a is None or a(value, bound) for a in others)


def _together(each: Sequence[Accepts]) -> Accepts:
    return lambda value, bound: all([a is None or a(value, bound) for a in each])


def _parameters(base: type[Attribute], each: Sequence[Accepts]) -> Accepts:
    """An attribute of a class, whose parameters satisfy a constraint each."""
    def accept(value: Any, bound: Bound) -> bool:
        if not isinstance(value, base) or len(cast(Any, value).parameters) != len(each):
            return False
        return all([a is None or a(p, bound)
                    for a, p in zip(each, cast(Any, value).parameters, strict=True)])

    return accept
