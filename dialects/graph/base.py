"""The base of all `graph` operations: shape inference, evaluation, syntax, symbolic sizes.

An operation is a class with four parts. Nothing needs to be registered elsewhere:

    @irdl_op_definition
    class TransposeOp(GraphOp):
        '''The specification: semantics, operands, constraints C1 ..., source.'''
        name = "graph.transpose"
        x = operand_def(TensorType)
        perm = prop_def(SizesAttr)
        result = result_def(TensorType)

        @classmethod
        def infer(cls, types, attributes):          # result types from operand types
            ...
        def evaluate(self, context, x):             # NumPy semantics
            return x.transpose(context.ints(self.perm))

`TransposeOp.of(value, perm=[0, 2, 1])` creates an operation and infers its result types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from dialects.classes import StrataOperation
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import (
    Array,
    ExprAttr,
    LiteralAttr,
    SizesAttr,
    TensorType,
    parse_tensor_type,
)
from dialects.symbolic.expr import Expr
from dialects.text.syntax import (
    attribute_of,
    parse_attributes,
    parse_values,
    print_attributes,
    print_values,
)

Attributes = Mapping[str, Attribute]


class ShapeError(Exception):
    """An operation's operand types or attributes contradict its constraints."""


class GraphOp(StrataOperation):
    """One tensor operator. Operands and results are tensors; attributes are constants or sizes."""

    traits = traits_def(Pure())

    KEPT_DIMS: ClassVar[int | None] = None
    """The number of last dims of operands that do not broadcast; None: no dim does. Matrix products
    (2) broadcast their first two operands."""

    MAY_FOLD: ClassVar[bool] = True
    """Whether an operation on constants may become a constant. Not so if other ranks take part, or
    if it says something about its operand."""

    # ------------------------------------------------------------------ to be defined by each op
    @classmethod
    def infer(
        cls, types: Sequence[TensorType], attributes: Attributes
    ) -> Sequence[TensorType]:
        """The result types. Raises ShapeError with a text that cites the constraint (`C2: ...`)."""
        raise NotImplementedError(cls.name)

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array | Sequence[Array]:
        """Evaluate the operation on NumPy arrays with the operands' dtypes and run-time shapes."""
        raise NotImplementedError(self.name)

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        """The result for operands that are object arrays of size expressions.

        Operations with which models compute shapes define it, so that shape computations can be
        evaluated symbolically. None if there is no symbolic result for this operation, or for
        these operands.
        """
        return None

    # ------------------------------------------------------------------ shared
    @classmethod
    def of(cls, *operands: SSAValue | Operation, **attributes: Any) -> Self:
        """Create the op. Attributes are Python values; None omits an optional one.

        Raises ShapeError if the operands do not fit.
        """
        values = [SSAValue.get(o) for o in operands]
        properties = {k: attribute_of(v) for k, v in attributes.items() if v is not None}
        types = cls.infer([v.type for v in values], properties)  # type: ignore[misc]
        return cls.create(operands=values, result_types=types, properties=properties)

    @property
    def result_tensors(self) -> list[TensorType]:
        """The types of the results."""
        return [r.type for r in self.results if isinstance(r.type, TensorType)]

    @property
    def operand_tensors(self) -> list[TensorType]:
        """The types of the operands."""
        return [o.type for o in self.operands if isinstance(o.type, TensorType)]

    def verify_(self) -> None:
        try:
            inferred = self.infer(self.operand_tensors, self.properties)
        except ShapeError as error:
            raise VerifyException(f"{self.name}: {error}") from error
        for result, expected in zip(self.results, inferred, strict=True):
            if result.type != expected:
                raise VerifyException(f"{self.name}: result is {result.type}, not {expected}")

    def print(self, printer: Printer) -> None:
        if self.operands:
            printer.print_string(" ")
            print_values(printer, self.operands)
        print_attributes(printer, self.properties)
        types = [r.short for r in self.result_tensors]
        printer.print_string(f" : {', '.join(types)}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands = parse_values(parser)
        properties = parse_attributes(parser)
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, lambda: parse_tensor_type(parser)
        )
        return cls.create(operands=operands, result_types=types, properties=properties)


class CompositeOp(GraphOp):
    """An operator that is defined by simpler ones, unless a target implements it directly.

    `decompose` builds the definition with `build`, which inserts an op and returns its result.
    `evaluate` defines the meaning independently, so that tests can compare the two.
    """

    def may_stay(self, channels: int) -> bool:
        """Whether a target that claims the operation implements it for these operands, too.

        `channels`: the fewest channels of a group for which it does, if the operation has groups.
        """
        return True

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        raise NotImplementedError(self.name)


class Build:
    """Inserts operations before a given one, with its location: `build(AddOp, a, b)`."""

    def __init__(self, anchor: Operation):
        self.anchor = anchor

    def insert(self, op: Operation) -> Operation:
        op.location = self.anchor.location
        block = self.anchor.parent
        assert block is not None
        block.insert_op_before(op, self.anchor)
        return op

    def __call__(
        self, op: type[GraphOp], *operands: SSAValue | Operation, **attributes: Any
    ) -> SSAValue:
        return self.insert(op.of(*operands, **attributes)).results[0]


# ---------------------------------------------------------------------- reading attributes in infer
def ints_of(attributes: Attributes, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
    """An attribute that must be a list of plain integers."""
    value = attributes.get(name)
    if value is None:
        return tuple(default)
    assert isinstance(value, SizesAttr)
    constants = [e.constant for e in value.data]
    if None in constants:
        raise ShapeError(f"{name} must be integers, not {value}")
    return tuple(c for c in constants if c is not None)


def sizes_of(attributes: Attributes, name: str) -> tuple[Expr, ...]:
    value = attributes[name]
    assert isinstance(value, SizesAttr)
    return value.data


def int_of(attributes: Attributes, name: str, default: int = 0) -> int:
    """An attribute that must be one plain integer."""
    value = attributes.get(name)
    if value is None:
        return default
    assert isinstance(value, ExprAttr)
    if value.data.constant is None:
        raise ShapeError(f"{name} must be an integer, not {value.data}")
    return value.data.constant


def float_of(attributes: Attributes, name: str, default: float = 0.0) -> float:
    value = attributes.get(name)
    if value is None:
        return default
    if isinstance(value, FloatAttr):
        return float(value.value.data)
    return float(int_of(attributes, name))


def number_of(attributes: Attributes, name: str) -> int | float | bool:
    """A number as written, so that integers of any size stay exact. 0 if it is missing."""
    value = attributes.get(name)
    if isinstance(value, FloatAttr):
        return float(value.value.data)
    if isinstance(value, IntegerAttr):
        return bool(value.value.data)
    return int_of(attributes, name)


def text_of(attributes: Attributes, name: str, default: str = "") -> str:
    value = attributes.get(name)
    return value.data if isinstance(value, StringAttr) else default


def flag_of(attributes: Attributes, name: str) -> bool:
    value = attributes.get(name)
    return isinstance(value, IntegerAttr) and bool(value.value.data)


def literal_of(attributes: Attributes, name: str) -> tuple[Any, ...]:
    value = attributes[name]
    assert isinstance(value, LiteralAttr)
    return value.data
