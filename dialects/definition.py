"""`irdl_op_definition` for our operations: xDSL's, with faster accessors and a faster verifier.

xDSL finds named operands, results and regions anew at each access, and verifies an operation by
interpreting its definition. Here both are prepared once for each class. What the prepared verifier
does not accept, or does not know, xDSL's verifies again, so that errors are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from xdsl import irdl
from xdsl.dialects.builtin import ArrayAttr, ArrayOfConstraint
from xdsl.ir import Attribute, Operation
from xdsl.irdl import IRDLOperation, OpDef
from xdsl.irdl.constraints import (
    AnyAttr,
    AnyOf,
    AttrConstraint,
    BaseAttr,
    MessageConstraint,
    RangeLengthConstraint,
    RangeOf,
)
from xdsl.irdl.operations import (
    AttrSizedSegments,
    BeforeVariadicSingleAccessor,
    OptionalDef,
    OptPropertyDef,
    VariadicDef,
    VarIRConstruct,
)
from xdsl.traits import OpTrait

Op = TypeVar("Op", bound=IRDLOperation)
Accepts: TypeAlias = "Callable[[Attribute], bool] | None"
"""Whether a constraint certainly holds; None where it always does."""

_NAMED = (VarIRConstruct.OPERAND, VarIRConstruct.RESULT, VarIRConstruct.REGION)
_tuple_item: Callable[[Any, int], Any] = tuple.__getitem__  # pyright: ignore


def irdl_op_definition(cls: type[Op]) -> type[Op]:
    """Define an operation. A decorator, as xDSL's of this name."""
    own_check: Callable[[Any], None] | None = getattr(cls, "verify_", None)
    made = irdl.irdl_op_definition(cls)
    for name, accessor in list(vars(made).items()):
        if type(accessor) is BeforeVariadicSingleAccessor and accessor.construct in _NAMED:
            setattr(made, name, _accessor(accessor.construct, accessor.idx))
    definition = made.get_irdl_definition()
    accepts = _verifier(definition)
    if accepts is not None:
        made.verify_ = _checked(accepts, definition, own_check)  # type: ignore[method-assign]
    return made


def _accessor(construct: VarIRConstruct, place: int) -> property:
    """The operand, result or region at a place that is the same in all operations of a class."""
    at = _tuple_item  # that of xDSL's tuples is Python code
    if construct is VarIRConstruct.OPERAND:
        return property(lambda op: at(op._operands, place), _refuse)
    if construct is VarIRConstruct.RESULT:
        return property(lambda op: at(op.results, place), _refuse)
    return property(lambda op: at(op.regions, place), _refuse)


def _refuse(op: object, value: object) -> None:
    raise NotImplementedError("a named operand, result or region cannot be set")


def _checked(
    accepts: Callable[[Operation], bool], definition: OpDef,
    own_check: Callable[[Any], None] | None,
) -> Callable[[Any], None]:
    """The verifier of a class: the definition's constraints, then the class's own."""
    def verify(op: IRDLOperation) -> None:
        if not accepts(op):
            definition.verify(op)
        if own_check is not None:
            own_check(op)

    return verify


# ---------------------------------------------------------------------- constraints
def _verifier(definition: OpDef) -> Callable[[Operation], bool] | None:
    """Whether the definition certainly accepts an operation; None for definitions with more than
    one variadic, or with constraints that are not on one type each."""
    if definition.successors or definition.attributes or any(
            isinstance(option, AttrSizedSegments) for option in definition.options):
        return None
    operands, results = _list(definition.operands), _list(definition.results)
    regions = _count_of_regions(definition)
    if operands is None or results is None or regions is None:
        return None
    properties = {name: (_accepts(d.constr), isinstance(d, OptPropertyDef))
                  for name, d in definition.properties.items()}
    traits = [t for t in definition.traits if type(t).verify is not OpTrait.verify]

    def accepts(op: Operation) -> bool:
        if op.successors or len(op.regions) != regions or any(
                region.first_block is None or region.first_block is not region.last_block
                for region in op.regions):
            return False
        if not operands([v.type for v in op._operands]) or not results(  # pyright: ignore[reportPrivateUsage]
                [v.type for v in op.results]) or not _fit(op.properties, properties):
            return False
        for trait in traits:
            trait.verify(op)
        return True

    return accepts


def _fit(given: dict[str, Attribute], defined: dict[str, tuple[Accepts, bool]]) -> bool:
    """Whether properties are the defined ones, and satisfy their constraints."""
    missing = len(defined)
    for name, value in given.items():
        if name not in defined:
            return False
        missing -= 1
        accepts, _ = defined[name]
        if accepts is not None and not accepts(value):
            return False
    return not missing or all(
        optional or name in given for name, (_, optional) in defined.items())


def _list(defs: Sequence[tuple[str, Any]]) -> Callable[[Sequence[Attribute]], bool] | None:
    """Whether types satisfy a list of definitions with at most one variadic."""
    constraints = [_of_range(d.constr, isinstance(d, VariadicDef)) for _, d in defs]
    variadic = [k for k, (_, d) in enumerate(defs) if isinstance(d, VariadicDef)]
    if None in constraints or len(variadic) > 1:
        return None
    accepts = [_accepts(c) for c in constraints if c is not None]
    if not variadic:
        return lambda types: len(types) == len(accepts) and all(
            a is None or a(type_) for a, type_ in zip(accepts, types, strict=True))
    place, is_optional = variadic[0], isinstance(defs[variadic[0]][1], OptionalDef)

    def accept(types: Sequence[Attribute]) -> bool:
        count = len(types) - len(accepts) + 1
        if count < 0 or (is_optional and count > 1):
            return False
        each = [*accepts[:place], *[accepts[place]] * count, *accepts[place + 1:]]
        return all(a is None or a(type_) for a, type_ in zip(each, types, strict=True))

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


def _accepts(constraint: AttrConstraint[Attribute]) -> Accepts:
    """Whether a constraint certainly holds. What is not sure is left to xDSL."""
    if isinstance(constraint, MessageConstraint):
        return _accepts(cast(Any, constraint).constr)
    if isinstance(constraint, AnyAttr):
        return None
    bases = _bases(constraint)
    if bases:
        return lambda value: isinstance(value, bases)
    if isinstance(constraint, ArrayOfConstraint):
        each = _of_range(cast(Any, constraint).elem_range_constraint, True)
        bases = () if each is None else _bases(each)
        return lambda value: bool(bases) and isinstance(value, ArrayAttr) and all(
            isinstance(element, bases) for element in cast(Any, value).data)
    return lambda value: False


def _bases(constraint: AttrConstraint[Attribute]) -> tuple[type[Attribute], ...]:
    """The classes of which an attribute must have one; empty for other constraints."""
    if isinstance(constraint, BaseAttr):
        return (cast(Any, constraint).attr,)
    if not isinstance(constraint, AnyOf):
        return ()
    each = [_bases(c) for c in cast(Any, constraint).attr_constrs]
    return tuple(c for bases in each for c in bases) if all(each) else ()
