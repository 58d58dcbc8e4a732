"""The view of a node that an operator's importer gets: its attributes, version and inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps

import numpy as np
import onnx
from onnx import AttributeProto
from xdsl.ir import Attribute

from compiler.frontend.choices import choose, equal
from compiler.frontend.faults import Fault, UnknownValue
from compiler.frontend.node import NodeBase, fixed
from compiler.frontend.onnx.element_types import element_type
from compiler.frontend.onnx.load import OnnxFile
from compiler.frontend.onnx.schema import attribute_kind
from compiler.frontend.onnx.sequences import AnyValue
from compiler.frontend.values import Number, Value, computed, scalar
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr, Size

MAX_LISTED = 8
"""The length up to which a list of sizes or bounds of an open length is looked for."""


def as_written(number: float) -> float:
    """The shortest decimal that f32 stores as this number: 0.2, not 0.200000003.

    In f32 and narrower types both are the same number.
    """
    return float(str(np.float32(number)))


def as_stored(number: float) -> float:
    """The number that f32 stores, which is what an operator on f64 computes with."""
    return float(np.float32(number))


@dataclass(eq=False)
class Node(NodeBase):
    """The node that is being imported.

    `version`: the opset version of the operator's domain. `outputs`: the names of its results,
    empty for one that is left out. `run_graph(label, graph, inputs)` imports a subgraph.
    """

    op_type: str
    domain: str
    version: int
    inputs: Sequence[AnyValue | None]
    outputs: Sequence[str]
    attributes: Mapping[str, AttributeProto]
    file: OnnxFile
    run_graph: Callable[[str, onnx.GraphProto, Sequence[AnyValue]], list[AnyValue]]

    def wants(self, index: int) -> bool:
        """Whether the output of this index is named, so that something may use it."""
        return index < len(self.outputs) and bool(self.outputs[index])

    # ------------------------------------------------------------------ attributes
    def has(self, name: str) -> bool:
        return name in self.attributes

    def integer(self, name: str, default: int = 0) -> int:
        found = self._attribute(name, AttributeProto.INT)
        return default if found is None else found.i

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.integer(name, int(default)))

    def real(self, name: str, default: float = 0.0) -> float:
        """A float attribute or its default, both of which are f32 in ONNX."""
        found = self._attribute(name, AttributeProto.FLOAT)
        return self._read_float(default if found is None else found.f)

    def text(self, name: str, default: str = "") -> str:
        found = self._attribute(name, AttributeProto.STRING)
        return default if found is None else found.s.decode("utf-8", "replace")

    def ints(self, name: str, default: Sequence[int] = ()) -> list[int]:
        found = self._attribute(name, AttributeProto.INTS)
        return list(default if found is None else found.ints)

    def floats(self, name: str, default: Sequence[float] = ()) -> list[float]:
        found = self._attribute(name, AttributeProto.FLOATS)
        return list(map(self._read_float, default if found is None else found.floats))

    def singles(self, name: str) -> Array:
        """A long list of floats, as an array of the f32 that ONNX stores."""
        found = self._attribute(name, AttributeProto.FLOATS)
        return np.array([] if found is None else found.floats, np.float32)

    def _read_float(self, number: float) -> float:
        is_f64 = any(isinstance(v, Value) and v.element == t.f64 for v in self.inputs)
        return as_stored(number) if is_f64 else as_written(number)

    def texts(self, name: str) -> list[str]:
        found = self._attribute(name, AttributeProto.STRINGS)
        return [] if found is None else [s.decode("utf-8", "replace") for s in found.strings]

    def tensor(self, name: str) -> Array | None:
        found = self._attribute(name, AttributeProto.TENSOR)
        return None if found is None else self.file.tensor(found.t)

    def sparse_tensor(self, name: str) -> Array | None:
        """A sparse tensor, as a dense one."""
        found = self._attribute(name, AttributeProto.SPARSE_TENSOR)
        return None if found is None else self.file.dense(found.sparse_tensor)

    def element(self, name: str, default: Attribute) -> Attribute:
        """The element type that an attribute names by its TensorProto.DataType."""
        return element_type(self.integer(name)) if self.integer(name) else default

    def run(
        self, name: str, label: str, inputs: Sequence[AnyValue] = ()
    ) -> list[AnyValue]:
        """Import the subgraph that an attribute holds into the current function; returns its
        outputs.

        Raises Fault or Skip, after all problems in it have been added to the faults.
        """
        return self.run_graph(label, self.graph(name), inputs)

    def graph(self, name: str) -> onnx.GraphProto:
        """The subgraph that an attribute holds."""
        found = self._attribute(name, AttributeProto.GRAPH)
        if found is None:
            raise Fault(f"its {name} is missing")
        return found.g

    def run_tensors(self, name: str, label: str, inputs: Sequence[Value]) -> list[Value]:
        """The same as `run`, for a subgraph whose outputs must be tensors. Raises Fault."""
        results = self.run(name, label, inputs)
        tensors = [r for r in results if isinstance(r, Value)]
        if len(tensors) < len(results):
            raise Fault(f"its {name} has a sequence as an output, where only tensors are supported")
        return tensors

    def _attribute(self, name: str, kind: int) -> onnx.AttributeProto | None:
        found = self.attributes.get(name)
        if found is not None and found.type != kind:
            given, wanted = attribute_kind(found.type), attribute_kind(kind)
            raise Fault(f"attribute '{name}' is of type {given}, not {wanted}")
        return found

    # ------------------------------------------------------------------ known contents of inputs
    def counted(self, value: Value, count: int | None) -> Value:
        """A list, whose length a run must find to be `count` if it is open and `count` is given."""
        if count is None or value.rank != 1 or value.shape[0].constant is not None:
            return value
        self.build.assume(value.shape[0], "==", count)
        return value.reshape([count])

    def of_chosen_length(self, value: Value, likely: int) -> Value:
        """A list; if its length is open, calls choose it (`choices.py`), first the likely one."""
        if value.rank != 1 or value.shape[0].constant is not None:
            return value
        lengths = [likely, *(k for k in range(MAX_LISTED + 1) if k != likely)]
        chosen = choose(self.build, [equal(value.shape[0], k, str(k)) for k in lengths])
        if not chosen:
            raise Fault("a single run gives it lists of different lengths, and the number of dims "
                        "would change with them")
        return value.reshape([int(chosen)])

    def known_sizes(self, value: Value, what: str, count: int | None = None) -> list[Expr]:
        """The contents as a list of size expressions.

        Contents that are known only at run time are bound to new sizes, so that they must not be
        negative. `count`: how many the operator requires. Raises Fault for contents that cannot be
        sizes.
        """
        found = self.build.bind(self.counted(value, count), what)
        if found is None:
            raise UnknownValue(value, f"its {what} are known only at run time, and cannot be sizes",
                               "they must be few integers")
        return list(found.reshape(-1))

    def known_size(self, value: Value, what: str) -> Expr:
        """The single number that an input holds, as a size expression. Raises Fault for several."""
        found = self.known_sizes(value, what, 1)
        if len(found) != 1:
            raise Fault(f"its {what} must be one number, not {value.type.short}")
        return found[0]

    def known_ints(self, value: Value, what: str) -> list[int]:
        """The contents as a list of integers. Raises Fault if they are not known."""
        if value.expressions is None:
            raise UnknownValue(value, f"its {what} are known only at run time",
                               "they must be constants or be computed from shapes; if they depend "
                               "on an input, make that input a constant of the model")
        return [self._integer(e, what) for e in value.expressions.reshape(-1)]

    def _integer(self, size: Expr, what: str) -> int:
        for name in sorted(size.symbols & self.build.computed.keys()):
            raise UnknownValue(self.build.computed[name],
                               f"its {what} are known only at run time, but must be constant",
                               "they must be constants or be computed from shapes; if they depend "
                               "on an input, make that input a constant of the model")
        return fixed(size, what)

    def known_numbers(self, value: Value, what: str) -> Array:
        """The contents as an array of numbers. Raises Fault when they are not known."""
        if value.array is None:
            raise UnknownValue(value, f"its {what} are known only at run time",
                               "they must be constants")
        return value.array

    def axes(self, value: Value | None, name: str = "axes") -> list[int] | None:
        """The axes from the input or else the attribute, as given; None if there is neither."""
        if value is not None:
            return self.known_ints(value, name)
        return self.ints(name) if self.has(name) else None

    # ------------------------------------------------------------------ helpers
    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front. Raises Fault outside -rank to rank - 1."""
        if not -rank <= axis < rank:
            raise Fault(f"axis {axis} is out of range for {rank} dims")
        return axis % rank

    def scalar(self, number: Number, like: Value) -> Value:
        """A constant of no dims in the element type of `like`."""
        return scalar(self.build, number, like.element)

    def of_sizes(self, sizes: Sequence[Size]) -> Value:
        """An i64 tensor of one dim that holds sizes."""
        contents = np.empty(len(sizes), object)
        contents[:] = list(map(Expr.of, sizes))
        return computed(self.build, contents, t.tensor(t.i64, contents.shape), self.name)

    def positions(self, x: Value, axis: int) -> Value:
        """The indices 0, 1, ... along an axis of x, as i64, in a shape that broadcasts to x's."""
        return self.range(x.shape[axis]).reshape([x.shape[axis], *[1] * (x.rank - axis - 1)])


def rounded_once(function: Callable[..., Value]) -> Callable[..., Value]:
    """The importer of an operator with one result of its first operand's type.

    Operators that are composed of several compute halves in f32, and round once at the end. A
    square may exceed the range of f16 although its root does not: the norm of [300, 400] is 500.
    """
    @wraps(function)
    def widened(n: Node, x: Value, *others: Value | None) -> Value:
        if not t.is_half(x.element):
            return function(n, x, *others)
        wide = [v if v is None or not t.is_half(v.element) else v.cast(t.f32) for v in (x, *others)]
        return function(n, *wide).cast(x.element)

    return widened
