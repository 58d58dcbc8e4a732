"""`irdl_op_definition` for our operations: xDSL's, with faster accessors and a faster verifier.

xDSL finds named operands, results and regions anew at each access, looks for properties to fill in
at each new operation, and verifies an operation by interpreting its definition. Here all of it is
prepared once for each class (`verifying.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, TypeVar, cast

from xdsl import irdl
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.core import SSAValues
from xdsl.irdl import IRDLOperation, OpDef
from xdsl.irdl.operations import (
    AttrSizedSegments,
    BeforeVariadicSingleAccessor,
    OptionalDef,
    PropertyAccessor,
    UniqueVariadicAccessor,
    VariadicAttrAccessor,
    VarIRConstruct,
)

from dialects.verifying import verifier

Op = TypeVar("Op", bound=IRDLOperation)

_NAMED = (VarIRConstruct.OPERAND, VarIRConstruct.RESULT, VarIRConstruct.REGION)
_ENDS = "_ends"
"""Under which an attribute of segments keeps where each ends."""
_tuple_item: Callable[[Any, int | slice], Any] = getattr(tuple, "__getitem__")  # noqa: B009


def part_of(values: Sequence[SSAValue], start: int, end: int | None = None) -> Sequence[SSAValue]:
    """Some of an operation's operands or results, as a plain tuple: xDSL's tuples are sliced
    in Python code."""
    return _tuple_item(values, slice(start, end))


def irdl_op_definition(cls: type[Op]) -> type[Op]:
    """Define an operation. A decorator, as xDSL's of this name."""
    own_check: Callable[[Any], None] | None = getattr(cls, "verify_", None)
    made = irdl.irdl_op_definition(cls)
    for name, accessor in list(vars(made).items()):
        if type(accessor) is BeforeVariadicSingleAccessor and accessor.construct in _NAMED:
            setattr(made, name, _accessor(accessor.construct, accessor.idx))
        elif type(accessor) is UniqueVariadicAccessor and (
                accessor.construct is VarIRConstruct.OPERAND):
            setattr(made, name, _operands_accessor(accessor.idx, accessor.num_defs - 1))
        elif type(accessor) is VariadicAttrAccessor and (
                accessor.construct is VarIRConstruct.OPERAND):
            setattr(made, name, _segment_accessor(accessor.idx, accessor.option))
        elif type(accessor) is PropertyAccessor:
            setattr(made, name, _property_accessor(accessor.property_name))
    definition = made.get_irdl_definition()
    made.verify_ = _checked(definition, own_check)  # type: ignore[method-assign]
    if made.__post_init__ in (IRDLOperation.__post_init__, _fill_in_nothing):
        made.__post_init__ = (  # type: ignore[method-assign]
            IRDLOperation.__post_init__ if _has_defaults(definition) else _fill_in_nothing)
    return made


def _has_defaults(definition: OpDef) -> bool:
    """Whether an operation that is made without some property or attribute gets it."""
    return any(part.default_value is not None and not isinstance(part, OptionalDef)
               for parts in (definition.properties, definition.attributes)
               for part in parts.values())


def _fill_in_nothing(op: IRDLOperation) -> None:
    """What xDSL does with a new operation of a class without default values."""


def _accessor(construct: VarIRConstruct, place: int) -> property:
    """The operand, result or region at a place that is the same in all operations of a class."""
    at = _tuple_item  # that of xDSL's tuples is Python code
    if construct is VarIRConstruct.OPERAND:
        return property(lambda op: at(op._operands, place), _refuse)
    if construct is VarIRConstruct.RESULT:
        return property(lambda op: at(op.results, place), _refuse)
    return property(lambda op: at(op.regions, place), _refuse)


def _operands_accessor(place: int, others: int) -> property:
    """The operands from a place on that are variadic, all but so many others."""
    at = _tuple_item

    def found(op: Any) -> SSAValues[SSAValue]:
        operands = op._operands
        return SSAValues(at(operands, slice(place, place + len(operands) - others)))

    return property(found if others else lambda op: op._operands, _refuse)


def _segment_accessor(place: int, option: AttrSizedSegments) -> property:
    """The operands of a variadic definition, where an attribute tells how many each has."""
    at, name = _tuple_item, option.attribute_name

    def found(op: Any) -> SSAValues[SSAValue]:
        sizes = option.container(op)[name]
        ends: tuple[int, ...] | None = vars(sizes).get(_ENDS)
        if ends is None:  # kept with the attribute, which does not change
            values: tuple[int, ...] = cast(Any, sizes).get_values()
            vars(sizes)[_ENDS] = ends = (0, *accumulate(values))
        return SSAValues(at(op._operands, slice(ends[place], ends[place + 1])))

    return property(found, _refuse)


def _property_accessor(name: str) -> property:
    """A property that every operation of a class has."""
    def put(op: Any, value: Attribute) -> None:
        op.properties[name] = value

    return property(lambda op: op.properties[name], put)


def _refuse(op: object, value: object) -> None:
    raise NotImplementedError("a named operand, result or region cannot be set")


def _checked(
    definition: OpDef, own_check: Callable[[Any], None] | None
) -> Callable[[Any], None]:
    """The verifier of a class: the definition's constraints, then the class's own. It is prepared
    at first use, since a program has operations of few classes."""
    prepared = cache(lambda: verifier(definition))

    def verify(op: IRDLOperation) -> None:
        accepts = prepared()
        if accepts is None or not accepts(op):
            definition.verify(op)
        if own_check is not None:
            own_check(op)

    return verify
