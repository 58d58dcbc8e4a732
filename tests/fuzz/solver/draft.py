"""A model in the making: values whose dims are symbols, and what operators require of these.

A specification (in the folder `specs`) is a function of a `Draft`. It picks operands, states
requirements and adds nodes. `Draft.attempt` keeps what it did only if Z3 still finds dims for the
whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import z3
from onnx import defs, helper

Array = np.ndarray[Any, np.dtype[Any]]
DType: TypeAlias = "np.dtype[Any]"
Dim: TypeAlias = "int | z3.ArithRef"
Shape: TypeAlias = "tuple[Dim, ...]"

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = (np.dtype(c) for c in ("f2", "f4", "f8"))
FLOATS = (F32, F64, F16, BF16)
F8 = tuple(np.dtype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz,
                                 ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz))
INTS = tuple(np.dtype(c) for c in ("i8", "i4", "i2", "i1", "u1", "u2", "u4", "u8"))
I64, I32, U8, I8 = INTS[0], INTS[1], INTS[4], INTS[3]
BOOL = np.dtype(bool)
NUMBERS = (*FLOATS, *INTS)
ALL = (*NUMBERS, BOOL)
NARROWED: dict[str, tuple[DType, ...]] = {
    "Erf": FLOATS, "ReduceLogSum": FLOATS, "ReduceLogSumExp": FLOATS}
"""Of what Strata refuses integers, as docs/operators.md says."""
SEQUENCES = ("SequenceAt", "ConcatFromSequence")
"""Operators whose first input is a sequence, for which a value of its elements' type stands."""
LARGEST_DIM = 40
SOLVER_LIMIT = 250
"""Milliseconds after which Z3 gives up, and an operator is not added."""


class Impossible(Exception):
    """The operator does not fit the values that were drawn for it."""


@dataclass(frozen=True)
class Domain:
    """Which numbers a value is to hold: any, or those for which an operator is defined.

    `index`: integers from -bound (or 0, `from_zero`) to bound - 1.
    """

    kind: str = "any"
    bound: Dim = 0
    from_zero: bool = False


ANY = Domain()


@dataclass(frozen=True)
class Value:
    """A tensor of the model. `placeholder`: no node computes it; it becomes an input or a weight.
    """

    name: str
    dtype: DType
    shape: Shape
    placeholder: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class Placeholder:
    """What is to be an input (or a weight, if `fixed`), and its numbers."""

    value: Value
    domain: Domain
    fixed: bool


@dataclass
class Ints:
    """A constant of integers that may be expressions of dims."""

    name: str
    data: Sequence[Dim] | Dim
    dtype: DType


@dataclass
class Body:
    """A subgraph of If, Loop or Scan."""

    inputs: list[Value]
    nodes: list[Node] = field(default_factory=list["Node"])
    outputs: list[Value] = field(default_factory=list[Value])


@dataclass
class Node:
    op_type: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    domain: str = ""


@dataclass
class Draft:
    """A model under construction, made from one random stream."""

    random: np.random.Generator
    opset: int
    main: DType
    smallest: int = 1
    """The least that a dim may be: 0 in models with empty tensors."""
    special: bool = False
    """Whether inputs hold NaN and infinities, of which no integer is defined."""
    weights: bool = True
    """Whether operands may be weights where they need not: what is computed of these alone the
    compiler rounds while it reads the model, which no run in f64 shows.
    """

    def __post_init__(self) -> None:
        self.solver = z3.Solver()
        self.solver.set("timeout", SOLVER_LIMIT)
        self.body = Body([])
        self.values: list[Value] = []
        self.placeholders: list[Placeholder] = []
        self.ints: list[Ints] = []
        self.arrays: dict[str, Array] = {}
        self.dims: list[z3.ArithRef] = []
        self.demands: list[Any] = []
        """All that operators require, once the draft is finished."""
        self.pinned: list[Dim] = []
        """Dims that must not stay open: what broadcasts is 1 at every size."""
        self.count = 0
        self.depth = 0
        self.changed = False

    # ------------------------------------------------------------------ drawing
    def integer(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def choose(self, items: Sequence[Any]) -> Any:
        return items[self.integer(0, len(items) - 1)]

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.random.random() < share)

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def dim(self) -> z3.ArithRef:
        """A new symbol."""
        symbol = z3.Int(self.fresh("d"))
        self.dims.append(symbol)
        self.solver.add(symbol >= self.smallest, symbol <= LARGEST_DIM)
        return symbol

    # ------------------------------------------------------------------ requirements
    def require(self, *conditions: Any) -> None:
        """What must hold of dims. Raises Impossible for what is false at once."""
        for condition in conditions:
            if condition is False:
                raise Impossible
            if condition is not True:
                self.solver.add(condition)
                self.changed = True

    def attempt(self, spec: Callable[[Draft], None]) -> bool:
        """Apply a specification; whether it fits. Without a trace if it does not."""
        marks = (len(self.body.nodes), len(self.values), len(self.placeholders), len(self.ints),
                 len(self.dims), len(self.pinned))
        body, arrays = self.body, dict(self.arrays)
        self.changed = False
        self.solver.push()
        try:
            spec(self)
            if not self.changed or self.solver.check() == z3.sat:
                return True
        except Impossible:
            pass
        self.solver.pop()
        self.body, self.arrays = body, arrays
        lists = (self.body.nodes, self.values, self.placeholders, self.ints, self.dims,
                 self.pinned)
        for items, mark in zip(lists, marks, strict=True):
            del items[mark:]
        return False

    # ------------------------------------------------------------------ operands
    def allowed(self, op_type: str, position: int = 0, domain: str = "") -> list[DType]:
        """The element types that an operator takes at this opset, of those that we draw."""
        known = NARROWED.get(op_type, ALL)
        return [t for t in known if t in allowed_types(op_type, self.opset, position, domain)]

    def narrow(self, op_type: str) -> list[DType]:
        """The same, of floats of 8 bits."""
        return [t for t in F8 if t in allowed_types(op_type, self.opset, 0, "")]

    def placeholder(
        self, dtype: DType, shape: Sequence[Dim], domain: Domain = ANY, fixed: bool | None = None
    ) -> Value:
        """A new input or weight."""
        value = Value(self.fresh("p"), dtype, tuple(shape), True)
        fixed = self.chance(0.4) and self.weights if fixed is None else fixed
        self.placeholders.append(Placeholder(value, domain, fixed))
        self.values.append(value)
        return value

    def pick(
        self, dtypes: Iterable[DType], low: int = 0, high: int = 5, domain: Domain = ANY
    ) -> Value:
        """A value of one of the types, of a rank from `low` to `high`, within the domain."""
        dtypes = list(dtypes)
        found = [v for v in self.values if v.dtype in dtypes and low <= v.rank <= high]
        if found and self.chance(0.8):
            return self.within(self.choose(found[-6:]), domain)
        if not dtypes:
            raise Impossible
        dtype = self.main if self.main in dtypes and self.chance(0.85) else self.choose(dtypes)
        rank = min(max(self.choose((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5)), low), high)
        return self.placeholder(dtype, [self.dim() for _ in range(rank)], domain)

    def like(self, dtype: DType, shape: Sequence[Dim], domain: Domain = ANY) -> Value:
        """A value of exactly this type and shape, by requirement or anew."""
        found = [v for v in self.values if v.dtype == dtype and v.rank == len(shape)]
        if found and domain == ANY and self.chance(0.3):
            value = self.choose(found[-6:])
            self.require(*(same(a, b) for a, b in zip(value.shape, shape, strict=True)))
            return value
        return self.placeholder(dtype, shape, domain)

    def within(self, value: Value, domain: Domain) -> Value:
        """The value, or what nodes make of it that the domain holds."""
        from tests.fuzz.solver.domains import confine

        return value if domain == ANY else confine(self, value, domain)

    def partner(self, x: Value) -> tuple[Value, Shape]:
        """A value of the same type that broadcasts with `x`, and the shape of both together."""
        found = [v for v in self.values if v.dtype == x.dtype]
        if found and self.chance(0.5):
            y = self.choose(found[-6:])
            return y, self.broadcast(x.shape, y.shape)
        rank = self.integer(0, x.rank) if self.chance(0.4) else x.rank
        shape = [1 if self.chance(0.25) else d for d in x.shape[x.rank - rank:]]
        if self.chance(0.1) and rank == x.rank < 5:
            shape = [self.dim(), *shape]
        y = self.placeholder(x.dtype, shape)
        return y, self.broadcast(x.shape, y.shape)

    def broadcast(self, a: Shape, b: Shape) -> Shape:
        """The common shape of two, NumPy's; requires dims equal, or one of them 1."""
        rank = max(len(a), len(b))
        padded = [(1,) * (rank - len(s)) + s for s in (a, b)]
        return tuple(self._together(m, n) for m, n in zip(*padded, strict=True))

    def _together(self, a: Dim, b: Dim) -> Dim:
        if is_one(a) or is_one(b) or same(a, b) is True:
            return b if is_one(a) else a
        kind = self.choose(("equal",) * 6 + ("left", "right"))
        if kind == "equal":
            self.require(same(a, b))
            return a
        one, other = (a, b) if kind == "left" else (b, a)
        if not any(same(one, d) is True for p in self.placeholders for d in p.value.shape):
            raise Impossible  # it is computed, and the compiler cannot know that it is 1
        self.require(same(one, 1))
        self.pinned.append(one)
        return other

    # ------------------------------------------------------------------ nodes
    def node(
        self, op_type: str, inputs: Sequence[Value | str], dtype: DType, shape: Sequence[Dim],
        domain: str = "", keep: bool = True, **attributes: Any,
    ) -> Value:
        """Add a node with one result."""
        return self.nodes(op_type, inputs, [(dtype, shape)], domain, keep, **attributes)[0]

    def nodes(
        self, op_type: str, inputs: Sequence[Value | str],
        results: Sequence[tuple[DType, Sequence[Dim]]], domain: str = "", keep: bool = True,
        **attributes: Any,
    ) -> list[Value]:
        """Add a node with any number of results. None among attributes: left out."""
        outputs = [Value(self.fresh("v"), dtype, tuple(shape)) for dtype, shape in results]
        if (any(v.rank > 6 for v in outputs) or not self._takes(op_type, inputs, domain)
                or not self._gives(op_type, results, domain)):
            raise Impossible
        names = [v if isinstance(v, str) else v.name for v in inputs]
        kept = {k: v for k, v in attributes.items() if v is not None}
        self.body.nodes.append(Node(op_type, names, [v.name for v in outputs], kept, domain))
        self.values.extend(outputs if keep else [])
        return outputs

    def _takes(self, op_type: str, inputs: Sequence[Value | str], domain: str) -> bool:
        """Whether the operator takes these element types at this opset."""
        return op_type in SEQUENCES or all(
            isinstance(v, str) or v.dtype in allowed_types(op_type, self.opset, k, domain)
            for k, v in enumerate(inputs))

    def _gives(
        self, op_type: str, results: Sequence[tuple[DType, Sequence[Dim]]], domain: str
    ) -> bool:
        return op_type in ("SplitToSequence", *SEQUENCES) or all(
            dtype in allowed_types(op_type, self.opset, -1 - k, domain)
            for k, (dtype, _) in enumerate(results))

    def constant(self, array: Any, dtype: Any = np.int64) -> str:
        """The name of a new constant."""
        name = self.fresh("c")
        self.arrays[name] = np.asarray(array, dtype)
        return name

    def sizes(self, data: Sequence[Dim] | Dim, dtype: DType = I64) -> str:
        """The name of a new constant of integers that may be expressions of dims."""
        self.ints.append(Ints(self.fresh("s"), data, dtype))
        return self.ints[-1].name


# ---------------------------------------------------------------------- dims and types
def is_one(dim: Dim) -> bool:
    return isinstance(dim, int) and dim == 1


def same(a: Dim, b: Dim) -> Any:
    """Whether two dims are equal: a truth value, or a requirement."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if not isinstance(a, int) and not isinstance(b, int) and a.eq(b):
        return True
    return a == b


def product(dims: Iterable[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = dim if is_one(total) else total if is_one(dim) else total * dim
    return total


_TYPES: dict[tuple[str, int, int, str], frozenset[DType]] = {}


def allowed_types(op_type: str, opset: int, position: int, domain: str) -> frozenset[DType]:
    """The NumPy element types of an operator's input, or of output k at position -1 - k; none
    where it is not there. ONNX does not know those of other domains: there specifications do.
    """
    if domain:
        return frozenset((*ALL, *F8))
    key = (op_type, opset, position, domain)
    if key not in _TYPES:
        _TYPES[key] = frozenset(_schema_types(*key))
    return _TYPES[key]


def _schema_types(op_type: str, opset: int, position: int, domain: str) -> Iterable[DType]:
    try:
        schema = defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return
    formals = schema.outputs if position < 0 else schema.inputs
    if schema.deprecated or not formals:
        return
    formal = formals[min(position if position >= 0 else -1 - position, len(formals) - 1)]
    for text in formal.types:
        if not text.startswith("tensor(") or "string" in text or "complex" in text:
            continue
        number = _NUMBER.get(text[len("tensor("):-1])
        if number is not None:
            yield np.dtype(helper.tensor_dtype_to_np_dtype(number))


_NUMBER = {"float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
           "bool": 9, "float16": 10, "double": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
           "float8e4m3fn": 17, "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20}
