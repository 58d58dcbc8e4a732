"""Host functions as data (`runtime/control.py`): each operation becomes a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.host import (
    AllocOp,
    CollectiveOp,
    ConstantOp,
    CopyOp,
    ForeignLaunchOp,
    FreeOp,
    FuncOp,
    LaunchOp,
    PartOp,
    ReturnOp,
    ViewOp,
    host_functions,
)
from dialects.strata.array_type import ArrayType
from dialects.strata.control import ControlOp, IfOp, LoopOp
from dialects.strata.requirements import RequireOp, TrapOp
from dialects.strata.sizes import AssumeOp, SizeOp, assumptions_of, defined_sizes
from dialects.strata.types import buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name
from targets.cuda.planning.plan import (
    exchange_of,
    foreign_call,
    kernel_call,
    planned_constant,
)
from targets.cuda.runtime.call_steps import (
    AllocStep,
    AssumeStep,
    CollectStep,
    CopyStep,
    FreeStep,
    LaunchStep,
    Step,
    ViewStep,
)
from targets.cuda.runtime.control import (
    IfStep,
    LoopStep,
    PlannedFunction,
    RequireStep,
    Results,
    SizeStep,
    TrapStep,
)
from targets.cuda.runtime.planned import PlannedKernel

Kernels = Mapping[str, PlannedKernel]


def planned_functions(module: ModuleOp, kernels: Kernels) -> list[PlannedFunction]:
    """All host functions of a module, which launch these kernels.

    Raises ValueError for an operation that cannot stand in a host function.
    """
    return [_Planner(kernels).function(op) for op in host_functions(module)]


class _Planner:
    """The buffers of a function, which have numbers from the first mention on."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._numbers: dict[SSAValue, int] = {}
        self._assumptions = 0

    def function(self, op: FuncOp) -> PlannedFunction:
        self._all(op.body.block.args)  # arguments have the first numbers
        ops = list(op.body.block.ops)
        constants = {self._number(c.result): planned_constant(c)
                     for c in ops if isinstance(c, ConstantOp)}
        steps = tuple(step for o in ops if (step := self._step(o)) is not None)
        results = self._all(op.return_op.values)
        return PlannedFunction(
            op.sym_name.data, location_name(op), _types(op.input_arguments),
            _types(op.output_arguments), tuple(r and ArrayType.of(r) for r in op.returned_types),
            tuple(op.size_names), _bound_dims(op), op.arena_bytes or Expr.of(0), constants,
            tuple(assumptions_of(op)), steps, results, len(self._numbers))

    def _number(self, value: SSAValue) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def _all(self, values: Iterable[SSAValue]) -> tuple[int, ...]:
        return tuple([self._number(v) for v in values])

    def _step(self, op: Operation) -> Step | None:
        """An operation as a step. Raises ValueError for one that cannot stand in a host function.
        """
        match op:
            case AllocOp() | ViewOp() | CopyOp() | FreeOp():
                return self._memory(op)
            case CollectiveOp():
                return CollectStep(self._number(op.source), self._number(op.target),
                                   exchange_of(op))
            case ForeignLaunchOp():
                return LaunchStep.of(foreign_call(op), self._all(op.buffers))
            case LaunchOp():
                return LaunchStep.of(kernel_call(op, self._kernels), self._all(op.buffers))
            case SizeOp() | RequireOp() | TrapOp() | AssumeOp():
                return self._check(op)
            case IfOp():
                return IfStep(self._number(op.condition), self._all(op.inputs), op.then_.data,
                              op.else_.data, self._results(op))
            case LoopOp():
                return self._loop(op)
            case ConstantOp() | ReturnOp():
                return None
            case _:
                raise ValueError(f"{op.name} cannot stand in a host function")

    def _memory(self, op: AllocOp | ViewOp | CopyOp | FreeOp) -> Step:
        match op:
            case AllocOp():
                return AllocStep(self._number(op.result), ArrayType.of(op.type),
                                 None if op.offset is None else op.offset.data, location_name(op))
            case ViewOp():
                offset = op.offset if isinstance(op, PartOp) else Expr.of(0)
                return ViewStep(self._number(op.source), self._number(op.result),
                                buffer_type(op.result).shape, offset)
            case CopyOp():
                return CopyStep(self._number(op.source), self._number(op.target),
                                buffer_type(op.source).dtype.itemsize)
            case FreeOp():
                return FreeStep(self._number(op.buffer))

    def _check(self, op: SizeOp | RequireOp | TrapOp | AssumeOp) -> Step:
        match op:
            case SizeOp():
                return SizeStep(tuple(defined_sizes(op)), self._number(op.source),
                                location_name(op))
            case RequireOp():
                return RequireStep(op.range, self._number(op.values))
            case TrapOp():
                return TrapStep(tuple(op.messages), self._number(op.fault))
            case AssumeOp():
                self._assumptions += 1  # in the order of `assumptions_of`
                return AssumeStep(self._assumptions - 1)

    def _loop(self, op: LoopOp) -> LoopStep:
        types = _types(op.results)
        carried = self._all(op.carried)
        return LoopStep(
            op.body.data, op.step_symbol, None if op.trip is None else op.trip.data,
            None if op.condition is None else self._number(op.condition), carried,
            self._all(op.inputs), tuple(t.dtype.itemsize for t in types[:len(carried)]),
            types[len(carried):], tuple(defined_sizes(op)), self._results(op), location_name(op))

    def _results(self, op: ControlOp) -> Results:
        names = {*defined_sizes(op)}
        dims = [(size.as_symbol, k, dim) for k, type_ in enumerate(op.result_types)
                for dim, size in enumerate(type_.shape)]
        return Results(self._all(op.results), tuple(
            (name, k, dim) for name, k, dim in dims if name is not None and name in names))


def _types(values: Iterable[SSAValue]) -> tuple[ArrayType, ...]:
    return tuple(ArrayType.of(buffer_type(v)) for v in values)


def _bound_dims(op: FuncOp) -> tuple[tuple[Symbol, int, int], ...]:
    """(size, argument, dim): which dims of inputs give sizes."""
    found: dict[Symbol, tuple[int, int]] = {}
    for position, argument in enumerate(op.input_arguments):
        for dim, size in enumerate(buffer_type(argument).shape):
            if size.as_symbol is not None:
                found.setdefault(size.as_symbol, (position, dim))
    return tuple((name, *place) for name, place in found.items())
