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
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from dialects.loop.domain import Domain, Ranges, cut, view_of
from dialects.loop.kernel import CallOp, KernelOp
from dialects.loop.nest import IndexOp, NestOp, YieldOp, scalar_type
from dialects.semantics.evaluation import EvaluationContext, evaluation_of
from dialects.semantics.numerics import highest, lowest
from dialects.semantics.products import sum_of_products
from dialects.semantics.scalar import evaluate_values, operations_for
from dialects.semantics.sums import reduced
from dialects.strata.parallel import in_threads
from dialects.strata.types import Array, TensorType, dtype_of
from dialects.strata.weights import aligned_zeros
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol

BLOCK_BYTES = 4 << 20
"""The approximate maximum size of one temporary; a body holds a few of them at a time."""

_REDUCERS: dict[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or,
}


def evaluate_nest(
    nest: NestOp, context: EvaluationContext, *operands: Array
) -> list[Array]:
    """The results of a nest. `operands`: its inputs, then its `into` tensor, if any."""
    extents = {a.name: int(a.extent.evaluate(context.sizes)) for a in nest.axes}
    domain = Domain(extents, frozenset(a.name for a in nest.reduce_axes), context.sizes)
    count = len(nest.inputs)
    outputs = [_Output.of(nest, k, domain, context, operands[count:])
               for k in range(len(nest.results))]
    inputs = [_Input(np.asarray(array, order="C"), map_, pad) for array, map_, pad in zip(
        operands[:count], nest.input_maps, nest.pad_values, strict=True)]
    if not all(domain.extents[name] for output in outputs for name in output.axes):
        return [o.array for o in outputs]
    if not all(extents.values()):
        for output in outputs if nest.is_reduction else ():
            output.write(domain.whole, _identity(output.kind, output.array.dtype))
        return [o.array for o in outputs]
    body = _Body.of(nest, domain, inputs)
    with np.errstate(all="ignore"):
        if nest.is_scatter:
            _scatter(body, outputs[0])
        elif not _contract(body, outputs):
            _evaluate_blocks(body, outputs)
    return [o.array for o in outputs]


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
        results = _listed(evaluate(context, *(values[o] for o in op.operands)))
        values.update(zip(op.results, results, strict=True))
    return [np.asarray(values[v], order="C") for v in kernel.yielded]


def evaluate_call(call: CallOp, context: EvaluationContext, *inputs: Array) -> list[Array]:
    """The results of the called kernel, with the sizes that the call passes."""
    kernel = call.target()
    sizes = dict(zip(kernel.size_names, context.ints(call.sizes), strict=True))
    return evaluate_kernel(kernel, EvaluationContext(sizes, context.weights), *inputs)


EVALUATIONS = {NestOp: evaluate_nest, KernelOp: evaluate_kernel, CallOp: evaluate_call}
"""See `dialects.semantics.evaluation`."""


def _listed(results: Array | Sequence[Array]) -> Sequence[Array]:
    return [results] if isinstance(results, np.ndarray) else results


# ---------------------------------------------------------------------- inputs
@dataclass(frozen=True)
class _Input:
    """A tensor, its index expressions, and the pad value (None: reads outside are errors)."""

    array: Array
    map: Sequence[Expr]
    pad: float | bool | None

    def view(self, domain: Domain) -> Array | None:
        """The elements for the whole domain as a view (of a padded copy); None if not affine."""
        known = domain.affine_map(self.map)
        if known is None:
            return None
        margins = [self._margin(dim, *domain.bounds(*m)) for dim, m in enumerate(known)]
        shifted = [(factors, offset + low)
                   for (factors, offset), (low, _) in zip(known, margins, strict=True)]
        return view_of(self._padded(margins), shifted, domain, domain.names)

    def _margin(self, dim: int, first: int, last: int) -> tuple[int, int]:
        """How far reads from `first` to `last` extend past both ends of a dim."""
        low, high = max(-first, 0), max(last + 1 - self.array.shape[dim], 0)
        if (low or high) and self.pad is None:
            self._complain(dim, first, last)
        return low, high

    def _complain(self, dim: int, first: int, last: int) -> None:
        raise IndexError(f"loop.nest reads elements {first} to {last}, by {self.map[dim]}, "
                         f"of dim {dim} of size {self.array.shape[dim]}")

    def _padded(self, margins: Sequence[tuple[int, int]]) -> Array:
        if not any(low or high for low, high in margins):
            return self.array
        sizes = zip(self.array.shape, margins, strict=True)
        result = np.full([s + low + high for s, (low, high) in sizes], self.pad, self.array.dtype)
        inner = zip(self.array.shape, margins, strict=True)
        result[tuple(slice(low, low + s) for s, (low, _) in inner)] = self.array
        return result

    def gather(self, values: Mapping[Symbol, Any]) -> Array:
        """The elements at computed indices: `values` holds axes, sizes and gathered inputs."""
        inside = np.ones((), np.bool_)
        terms: dict[tuple[int, ...], Array] = {}  # by shape, so that few large arrays are added
        step = self.array.size
        for dim, (expr, size) in enumerate(zip(self.map, self.array.shape, strict=True)):
            index = np.asarray(expr.evaluate(values), np.int64)
            first, last = int(index.min()), int(index.max())
            if first < 0 or last >= size:
                if self.pad is None:
                    self._complain(dim, first, last)
                inside = inside & (index >= 0) & (index < size)
                index = np.clip(index, 0, max(size - 1, 0))
            step //= max(size, 1)
            terms[index.shape] = terms.get(index.shape, np.int64(0)) + index * step
        flat = np.asarray(sum(sorted(terms.values(), key=np.size)), np.int64)
        if not self.array.size:
            return np.full(flat.shape, self.pad, self.array.dtype)
        found = self.array.reshape(-1).take(flat)
        pad = self.array.dtype.type(self.pad or 0)
        return found if inside.all() else np.where(inside, found, pad)


# ---------------------------------------------------------------------- outputs
@dataclass(frozen=True)
class _Output:
    """A result under construction: the array, its index expressions, and its combiner."""

    array: Array
    map: Sequence[Expr]
    kind: str
    domain: Domain
    axes: Sequence[Symbol]
    """The axes that index it."""

    @staticmethod
    def of(
        nest: NestOp, number: int, domain: Domain, context: EvaluationContext,
        into: Sequence[Array],
    ) -> _Output:
        type_ = nest.results[number].type
        assert isinstance(type_, TensorType)
        array = aligned_zeros(context.shape(type_), type_.dtype)
        for rest in into:
            array[...] = rest
        axes = domain.names if nest.is_scan else domain.parallel
        return _Output(array, nest.output_maps[number], nest.combiner_names[number], domain, axes)

    def combine(self, ranges: Ranges, value: Array) -> None:
        """Reduce a block's values, one dim per axis, and write them."""
        axes = self.domain.reduce_dims
        value = value.view(self.array.dtype)
        if axes:
            full = np.broadcast_to(value, [len(r) for r in ranges.values()])
            merge = _REDUCERS[self.kind]
            value = (merge.accumulate(full, axes[0], value.dtype) if self.is_scan
                     else reduced(merge, full, axes, value.dtype))
        self.write(ranges, value)

    def write(self, ranges: Ranges, value: Array) -> None:
        """Store values that have, or broadcast to, one dim per axis of the output."""
        block = {name: ranges[name] for name in self.axes}
        if self.view is not None:
            cut(self.view, block)[...] = value
            return
        symbols = {**self.domain.sizes, **self.domain.grid(block, block)}
        self.array[self._places(symbols)] = value

    @cached_property
    def view(self) -> Array | None:
        """A view of the elements that the whole domain writes; None if it is not affine."""
        known = self.domain.affine_map(self.map)
        if known is None:
            return None
        for dim, affine in enumerate(known):
            self._check(dim, *self.domain.bounds(*affine))
        return view_of(self.array, known, self.domain, self.axes)

    @property
    def is_scan(self) -> bool:
        return len(self.axes) > len(self.domain.parallel)

    def merge(self, known: Mapping[Symbol, Any], value: Array) -> None:
        """Merge values one after another into elements that may occur repeatedly."""
        value, *places = np.broadcast_arrays(value.view(self.array.dtype), *self._places(known))
        if self.kind != "none":
            return _REDUCERS[self.kind].at(self.array, tuple(places), value)
        self.array[tuple(places)] = value

    def _places(self, known: Mapping[Symbol, Any]) -> tuple[Array, ...]:
        """The indices, given the values of their symbols."""
        indices = tuple(np.asarray(e.evaluate(known)) for e in self.map)
        for dim, index in enumerate(indices):
            self._check(dim, int(index.min()), int(index.max()))
        return indices

    def _check(self, dim: int, first: int, last: int) -> None:
        if first < 0 or last >= self.array.shape[dim]:
            raise IndexError(f"loop.nest writes elements {first} to {last}, by {self.map[dim]}, "
                             f"of dim {dim} of size {self.array.shape[dim]}")


def _identity(kind: str, dtype: np.dtype[Any]) -> Array:
    """The identity of a combiner."""
    if kind == "and":
        return np.asarray(-1).astype(dtype) if dtype != np.bool_ else np.asarray(True)
    start = {"max": lowest(dtype), "min": highest(dtype), "mul": 1}.get(kind, 0)
    return np.asarray(start).astype(dtype)


# ---------------------------------------------------------------------- the body
@dataclass(frozen=True)
class _Body:
    """A nest's body with its inputs, evaluated for a block of the domain."""

    nest: NestOp
    domain: Domain
    inputs: Sequence[_Input]
    views: Sequence[Array | None]
    """For each input, a view of its elements over the whole domain, or None."""
    symbols: frozenset[Symbol]
    """The axes, sizes and gathered inputs used by expressions that are evaluated elementwise."""

    @staticmethod
    def of(nest: NestOp, domain: Domain, inputs: Sequence[_Input]) -> _Body:
        views = [i.view(domain) for i in inputs]
        computed = [op.expr.data for op in nest.body.block.ops if isinstance(op, IndexOp)]
        for input_, view in zip(inputs, views, strict=True):
            computed += input_.map if view is None else ()
        for map_ in nest.output_maps if nest.is_scatter else ():
            computed += map_
        return _Body(nest, domain, inputs, views, frozenset(s for e in computed for s in e.symbols))

    def values(self, ranges: Ranges, wanted: Sequence[SSAValue]) -> list[Array]:
        """Values of the body, with one dim per axis, of size 1 if they do not depend on it."""
        return self.evaluated(ranges, wanted)[1]

    def evaluated(
        self, ranges: Ranges, wanted: Sequence[SSAValue]
    ) -> tuple[dict[Symbol, Any], list[Array]]:
        """The values of the symbols in computed expressions, then the same values as `values`."""
        grid = self.domain.grid(ranges, self.symbols)
        known: dict[Symbol, Any] = {**self.domain.sizes, **grid}
        arguments = [np.empty(())] * len(self.inputs)  # placeholders for unused inputs
        for k in self.inputs_behind(wanted):
            view = self.views[k]
            value = self.inputs[k].gather(known) if view is None else cut(view, ranges)
            if Symbol.gathered(k) in self.symbols:
                known[Symbol.gathered(k)] = value.astype(np.int64)
            arguments[k] = value.view(dtype_of(scalar_type(self.nest.inputs[k])))

        def index(op: Operation) -> Sequence[Array]:
            if not isinstance(op, IndexOp):
                raise KeyError(f"{op.name} cannot stand in the body of a nest")
            return [np.asarray(op.expr.data.evaluate(known), np.int64)]

        found = evaluate_values(self.nest.body.block, arguments, wanted, index)
        return known, [v if v.ndim else v.reshape((1,) * len(ranges)) for v in found]

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


def _evaluate_blocks(body: _Body, outputs: Sequence[_Output]) -> None:
    """The general path: all values of the body, then the combiners."""
    domain = body.domain
    widest = max([i.array.itemsize for i in body.inputs] + [o.array.itemsize for o in outputs])
    inner = math.prod(domain.extents[name] for name in domain.reduce)

    def evaluate(ranges: Ranges) -> None:
        values = body.values(ranges, body.nest.yielded)
        for output, value in zip(outputs, values, strict=True):
            output.combine(ranges, value)

    in_threads(evaluate, domain.blocks(domain.parallel, max(BLOCK_BYTES // widest // inner, 1)))


def _scatter(body: _Body, output: _Output) -> None:
    """Scatter block by block, in the order of the points."""
    for ranges in body.domain.blocks(body.domain.names, max(BLOCK_BYTES // 8, 1)):
        known, [value] = body.evaluated(ranges, body.nest.yielded)
        output.merge(known, np.broadcast_to(value, [len(r) for r in ranges.values()]))


# ---------------------------------------------------------------------- sums of products
def _contract(body: _Body, outputs: Sequence[_Output]) -> bool:
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
