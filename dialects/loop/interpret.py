"""The meaning of nests and kernels, on NumPy arrays.

A nest is evaluated for whole blocks of its domain at once. Every input becomes an array with one
dim per axis, of size 1 if the read does not depend on the axis: a strided view if the index
expressions are affine, otherwise a gather. The body then runs on these arrays with broadcasting,
and a combiner reduces the dims of the reduce axes. A nest that sums products becomes a matrix
multiplication of its factors. A scatter merges values in the order of its points.

Size symbols come from the context. A read outside its tensor that has no pad raises IndexError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from dialects.loop.access import Output, identity_of
from dialects.loop.body_ops import IndexOp, YieldOp
from dialects.loop.kernel import CallOp, KernelOp
from dialects.loop.nest import NestOp, scalar_type
from dialects.records import dataclass
from dialects.semantics.carriers import as_array
from dialects.semantics.domain import Domain, Ranges, cut
from dialects.semantics.evaluation import EvaluationContext, evaluation_of
from dialects.semantics.products import sum_of_products
from dialects.semantics.reads import Input
from dialects.semantics.scalar import evaluate_values, operations_for
from dialects.strata.parallel import in_threads
from dialects.strata.types import Array, dtype_of
from dialects.symbolic.symbol import Symbol

BLOCK_BYTES = 4 << 20
"""The approximate maximum size of one temporary; a body holds a few of them at a time."""


def evaluate_nest(
    nest: NestOp, context: EvaluationContext, *operands: Array
) -> list[Array]:
    """The results of a nest. `operands`: its inputs, then its `into` tensor, if any."""
    extents = {a.name: int(a.extent.evaluate(context.sizes)) for a in nest.axes}
    domain = Domain(extents, frozenset(a.name for a in nest.reduce_axes), context.sizes)
    count = len(nest.inputs)
    outputs = [Output.of(nest, k, domain, context, operands[count:])
               for k in range(len(nest.results))]
    inputs = [Input(as_array(array, order="C"), map_, pad) for array, map_, pad in zip(
        operands[:count], nest.input_maps, nest.pad_values, strict=True)]
    if not all(domain.extents[name] for output in outputs for name in output.axes):
        return [o.array for o in outputs]
    if not all(extents.values()):
        for output in outputs if nest.is_reduction else ():
            output.write(domain.whole, _before_all_points(nest, domain, inputs, output))
        return [o.array for o in outputs]
    body = _Body.of(nest, domain, inputs, context)
    with np.errstate(all="ignore"):
        if nest.is_scatter:
            _scatter(body, outputs[0])
        elif nest.is_recurrence:
            _follow(body, outputs[0])
        elif not _contract(body, outputs):
            _evaluate_blocks(body, outputs)
    return [o.array for o in outputs]


def _before_all_points(
    nest: NestOp, domain: Domain, inputs: Sequence[Input], output: Output
) -> Array:
    """The value of a reduction without points: an identity, or the first state of a recurrence."""
    if not nest.is_recurrence:
        return identity_of(output.kind, output.array.dtype)
    found = inputs[0].view(domain)
    if found is None:
        found = inputs[0].gather({**domain.sizes, **domain.grid(domain.whole, domain.names)})
    return np.squeeze(found, domain.reduce_dims).view(output.array.dtype)


def evaluate_kernel(
    kernel: KernelOp, context: EvaluationContext, *inputs: Array
) -> list[Array]:
    """The results of a kernel, with the sizes in `context.sizes`."""
    values: dict[SSAValue, Array] = dict(zip(kernel.body.block.args, inputs, strict=True))
    for op in kernel.body.block.ops:
        if isinstance(op, YieldOp):
            break
        evaluate = evaluation_of(op)
        assert evaluate is not None, f"{op.name} has no meaning"
        results = context.carried(_listed(evaluate(context, *(values[o] for o in op.operands))))
        values.update(zip(op.results, results, strict=True))
    return [as_array(values[v], order="C") for v in kernel.yielded]


def evaluate_call(call: CallOp, context: EvaluationContext, *inputs: Array) -> list[Array]:
    """The results of the called kernel, with the sizes that the call passes."""
    kernel = call.target()
    sizes = dict(zip(kernel.size_names, context.ints(call.sizes), strict=True))
    inner = EvaluationContext(sizes, context.weights, carry=context.carry)
    return evaluate_kernel(kernel, inner, *inputs)


EVALUATIONS = {NestOp: evaluate_nest, KernelOp: evaluate_kernel, CallOp: evaluate_call}
"""See `dialects.semantics.evaluation`."""


def _listed(results: Array | Sequence[Array]) -> Sequence[Array]:
    return [results] if isinstance(results, np.ndarray) else results


# ---------------------------------------------------------------------- the body
@dataclass(frozen=True)
class _Body:
    """A nest's body with its inputs, evaluated for a block of the domain."""

    nest: NestOp
    domain: Domain
    inputs: Sequence[Input]
    views: Sequence[Array | None]
    """For each input, a view of its elements over the whole domain, or None."""
    symbols: frozenset[Symbol]
    """The axes, sizes and gathered inputs used by expressions that are evaluated elementwise."""
    like: Array | None
    """An array with the arithmetic of the context, if it has one."""

    @staticmethod
    def of(
        nest: NestOp, domain: Domain, inputs: Sequence[Input], context: EvaluationContext
    ) -> _Body:
        views = [i.view(domain) for i in inputs]
        computed = [op.expr.data for op in nest.body.block.ops if isinstance(op, IndexOp)]
        for input_, view in zip(inputs, views, strict=True):
            computed += input_.map if view is None else ()
        for map_ in nest.output_maps if nest.is_scatter else ():
            computed += map_
        like = None if context.carry is None else context.carry(np.zeros(()))
        return _Body(nest, domain, inputs, views,
                     frozenset(s for e in computed for s in e.symbols), like)

    def values(
        self, ranges: Ranges, wanted: Sequence[SSAValue], state: Array | None = None
    ) -> list[Array]:
        """Values of the body, with one dim per axis, of size 1 if they do not depend on it.

        `state` replaces what the first input reads.
        """
        return self.evaluated(ranges, wanted, state)[1]

    def evaluated(
        self, ranges: Ranges, wanted: Sequence[SSAValue], state: Array | None = None
    ) -> tuple[dict[Symbol, Any], list[Array]]:
        """The values of the symbols in computed expressions, then the same values as `values`."""
        grid = self.domain.grid(ranges, self.symbols)
        known: dict[Symbol, Any] = {**self.domain.sizes, **grid}
        arguments = [np.empty(())] * len(self.inputs)  # placeholders for unused inputs
        for k in self.inputs_behind(wanted):
            value = self._read(k, ranges, known) if k or state is None else state
            if Symbol.gathered(k) in self.symbols:
                known[Symbol.gathered(k)] = value.astype(np.int64)
            arguments[k] = value.view(dtype_of(scalar_type(self.nest.inputs[k])))

        def index(op: Operation) -> Sequence[Array]:
            if not isinstance(op, IndexOp):
                raise KeyError(f"{op.name} cannot stand in the body of a nest")
            return [np.asarray(op.expr.data.evaluate(known), np.int64)]

        found = evaluate_values(self.nest.body.block, arguments, wanted, index, self.like)
        return known, [v if v.ndim else v.reshape((1,) * len(ranges)) for v in found]

    def _read(self, k: int, ranges: Ranges, known: Mapping[Symbol, Any]) -> Array:
        view = self.views[k]
        return self.inputs[k].gather(known) if view is None else cut(view, ranges)

    def whole(self, value: SSAValue) -> Array | None:
        """A value for the whole domain, if it depends on at most one input that is not a scalar.

        Such a value needs no more memory than the input. Other values may be larger; None for
        those.
        """
        if any(isinstance(op, IndexOp) for op in operations_for(self.nest.body.block, [value])):
            return None
        sizes = [self._size_of(k) for k in self.inputs_behind([value])]
        if None in sizes or sum(size != 1 for size in sizes) > 1:
            return None
        return self.values(self.domain.whole, [value])[0]

    def _size_of(self, k: int) -> int | None:
        """The number of elements of an input over the whole domain; None if a gather enlarges it.
        """
        view, input_ = self.views[k], self.inputs[k]
        if view is not None:
            return view.size
        axes = {s for e in input_.map for s in e.symbols} & self.domain.extents.keys()
        size = math.prod(self.domain.extents[name] for name in axes)
        return size if size <= 2 * input_.array.size else None

    def inputs_behind(self, wanted: Sequence[SSAValue]) -> list[int]:
        """The inputs that values depend on, and those that index expressions read."""
        block = self.nest.body.block
        read = {*wanted, *(o for op in operations_for(block, wanted) for o in op.operands)}
        return [k for k in range(len(self.inputs))
                if block.args[k] in read or Symbol.gathered(k) in self.symbols]

    def axes_of(self, value: SSAValue) -> set[Symbol]:
        """The axes that a value may depend on."""
        ops = operations_for(self.nest.body.block, [value])
        found = {s for op in ops if isinstance(op, IndexOp) for s in op.expr.data.symbols}
        for k in self.inputs_behind([value]):
            found.update(s for e in self.inputs[k].map for s in e.symbols)
        return found & self.domain.extents.keys()


def _evaluate_blocks(body: _Body, outputs: Sequence[Output]) -> None:
    """The general path: all values of the body, then the combiners."""
    domain = body.domain
    widest = max([i.array.itemsize for i in body.inputs] + [o.array.itemsize for o in outputs])
    inner = math.prod(domain.extents[name] for name in domain.reduce)

    def evaluate(ranges: Ranges) -> None:
        values = body.values(ranges, body.nest.yielded)
        for output, value in zip(outputs, values, strict=True):
            output.combine(ranges, value)

    in_threads(evaluate, domain.blocks(domain.parallel, max(BLOCK_BYTES // widest // inner, 1)))


def _follow(body: _Body, output: Output) -> None:
    """Walk the axis of a recurrence point by point, for a block of the other axes at a time."""
    domain = body.domain
    [axis] = [name for name in domain.names if name in domain.reduce]

    def evaluate(ranges: Ranges) -> None:
        state = None
        for k in ranges[axis]:
            point = {**ranges, axis: range(k, k + 1)}
            [state] = body.values(point, body.nest.yielded, state)
        assert state is not None
        output.write(ranges, np.squeeze(state, domain.reduce_dims).view(output.array.dtype))

    in_threads(evaluate, domain.blocks(domain.parallel, BLOCK_BYTES // 8))


def _scatter(body: _Body, output: Output) -> None:
    """Scatter block by block, in the order of the points."""
    written = np.zeros(output.array.shape, bool)
    marks = replace(output, array=written, kind="none")
    for ranges in body.domain.blocks(body.domain.names, max(BLOCK_BYTES // 8, 1)):
        known, [value] = body.evaluated(ranges, body.nest.yielded)
        value = np.broadcast_to(value, [len(r) for r in ranges.values()])
        output.merge(known, value)
        if body.nest.total is not None:
            marks.merge(known, np.ones(value.shape, bool))
    if body.nest.total is not None and not written.all():
        raise IndexError(f"a total loop.nest leaves {written.size - written.sum()} of "
                         f"{written.size} elements unwritten")


# ---------------------------------------------------------------------- sums of products
def _contract(body: _Body, outputs: Sequence[Output]) -> bool:
    """Evaluate a nest that sums products of two values of its body; False for other nests."""
    factors = _factors_of(body.nest)
    if factors is None or outputs[0].kind != "add":
        return False
    domain, item = body.domain, outputs[0].array.itemsize
    a, b = map(body.whole, factors)
    if a is not None and b is not None:
        summed = {k: domain.extents[domain.names[k]] for k in domain.reduce_dims}
        outputs[0].write(domain.whole, sum_of_products(a, b, summed, a.dtype))
        return True
    larger = max((body.axes_of(f) for f in factors),
                 key=lambda axes: math.prod(domain.extents[name] for name in axes))
    inner = math.prod(domain.extents[name] for name in larger & domain.reduce)
    split = [name for name in domain.parallel if name in larger]
    for ranges in domain.blocks(split, max(BLOCK_BYTES // item // inner, 1)):
        a, b = body.values(ranges, factors)
        summed = {k: len(ranges[domain.names[k]]) for k in domain.reduce_dims}
        outputs[0].write(ranges, sum_of_products(a, b, summed, a.dtype))
    return True


def _factors_of(nest: NestOp) -> Sequence[SSAValue] | None:
    """The factors, if the body only yields a product of f32, f64 or wide integers."""
    if len(nest.yielded) != 1 or not isinstance(nest.yielded[0].owner, Operation) or nest.is_scan:
        return None
    product = nest.yielded[0].owner
    is_product = isinstance(product, arith.MulfOp | arith.MuliOp)
    wide = dtype_of(nest.yielded[0].type).itemsize >= 4
    return product.operands if is_product and wide else None
