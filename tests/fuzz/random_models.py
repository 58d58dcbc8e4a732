"""Random valid ONNX models: model number k, always the same.

`model_steps.py` and `model_products.py` have the operators. Sizes are few and odd (0, 1, primes,
one more than a power of two), some of them open. Those are never 1 in the first inputs, so that a
model is valid for what the compiler takes open sizes for until a call differs, and 0 always is, as
it means an open size in a model file. Numbers are small multiples of 1/8, so that many results are
exact; operators that jump (Floor, Cast, Less, ArgMax) are only given exact values, for rounding
might else decide which way they go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
OPSET, IR_VERSION = 21, 10
BF16 = np.dtype(ml_dtypes.bfloat16)
SIZES = {"a": (1, 2, 3, 5), "b": (2, 3, 7, 17), "c": (0, 1, 4, 33), "d": (5, 6, 13)}
"""What the named sizes may be; a model has one of each."""
FLOATS = (*map(np.dtype, ("f4", "f4", "f4", "f4", "f8", "f2")), BF16)
INTEGERS = tuple(map(np.dtype, ("i8", "i4", "i8", "i4", "i2", "i1", "u1", "u2", "u4", "u8")))
BOOL = np.dtype(bool)
MAX_ELEMENTS = 5000


class Impossible(Exception):
    """The operator does not fit the values that were drawn for it."""


@dataclass(frozen=True)
class Value:
    """A tensor of the model and its shape at run time.

    `exact`: every correct implementation computes the very same numbers. `bound`: of magnitudes.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    exact: bool = False
    bound: float = 4.0

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f" or self.dtype == BF16


@dataclass
class RandomModel:
    """A model under construction."""

    number: int
    values: list[Value] = field(default_factory=list[Value])
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    infos: list[onnx.ValueInfoProto] = field(default_factory=list[onnx.ValueInfoProto])
    inputs: dict[str, Array] = field(default_factory=dict[str, Array])
    dims: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    has_empty_sum: bool = False
    """Whether a product sums over nothing: onnxruntime leaves such results uninitialized."""

    def __post_init__(self) -> None:
        self.random = np.random.default_rng([self.number, 37])
        self.sizes = {name: self.choose(sizes) for name, sizes in SIZES.items()}
        self.open = {name for name, size in self.sizes.items()
                     if size != 1 and (not size or self.chance(0.5))}
        self.main = self.choose(FLOATS if self.chance(0.75) else INTEGERS)

    # ------------------------------------------------------------------ drawing
    def integer(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def choose(self, items: Sequence[Any]) -> Any:
        return items[self.integer(0, len(items) - 1)]

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.random.random() < share)

    def pick(self, low: int = 0, high: int = 5, *, kind: str = "", exact: bool = False) -> Value:
        """One of the last values of a rank in the range; `kind`: "float", "int" or "bool"."""
        kinds = {"": lambda v: v.dtype != BOOL, "float": lambda v: v.is_float,
                 "int": lambda v: v.dtype.kind in "iu", "bool": lambda v: v.dtype == BOOL}
        found = [v for v in self.values if low <= v.rank <= high and kinds[kind](v)
                 and (v.exact or not exact)]
        if not found:
            raise Impossible
        return self.choose(found[-7:])

    def numbers(self, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
        if dtype == BOOL:
            return np.asarray(self.random.integers(0, 2, shape), bool)
        if dtype.kind in "iu":
            return np.asarray(self.random.integers(0 if dtype.kind == "u" else -4, 5, shape), dtype)
        return np.asarray(self.random.integers(-32, 33, shape) / 8, dtype)

    def used_sizes(self) -> dict[str, int]:
        """The open sizes that inputs have, and what they are in `inputs`."""
        return {name: self.sizes[name] for names in self.dims.values() for name in names if name}

    # ------------------------------------------------------------------ building
    def build(self) -> onnx.ModelProto:
        """The whole model. `inputs` has what to run it on."""
        from tests.fuzz.model_products import STEPS

        for k in range(self.integer(1, 3)):
            self._input(f"x{k}")
        wanted = self.integer(1, 9)
        for _ in range(4 * wanted):
            if len(self.nodes) >= wanted:
                break
            try:
                self.choose(STEPS)(self)
            except Impossible:
                continue
        return self._finish()

    def _input(self, name: str) -> None:
        named = [self.choose([*SIZES, ""]) for _ in range(self.integer(0, 4))]
        shape = tuple(self.sizes.get(n, 1) for n in named)
        dtype = self.main if self.chance(0.8) else self.choose((*FLOATS, *INTEGERS, BOOL))
        self.inputs[name] = self.numbers(dtype, shape)
        self.dims[name] = [n if n in self.open else "" for n in named]
        self.infos.append(helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(dtype),
            [n if n in self.open else s for n, s in zip(named, shape, strict=True)]))
        self.values.append(Value(name, dtype, shape, exact=True))

    def constant(self, array: Any, dtype: Any = np.int64) -> str:
        """The name of a new constant."""
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def weight(self, dtype: np.dtype[Any], shape: Sequence[int]) -> Value:
        return Value(self.constant(self.numbers(dtype, shape), dtype), dtype, tuple(shape), True)

    def node(
        self, op_type: str, operands: Sequence[Value | str], like: Value,
        shape: Sequence[int] | None = None, keep: bool = True, **changes: Any,
    ) -> Value:
        """Add a node whose result is like a value, with the `changes` in `Value`'s fields; other
        keywords are attributes. `keep`: whether later nodes may use it. Too large results and
        numbers are refused.
        """
        fields = {k: changes.pop(k) for k in ("dtype", "exact", "bound") if k in changes}
        name = f"v{len(self.nodes)}"
        result = replace(like, name=name, **fields)
        result = result if shape is None else replace(result, shape=tuple(map(int, shape)))
        largest = 60 if result.dtype.itemsize == 1 or result.dtype == BF16 else 2000
        if np.prod(result.shape, initial=1) > MAX_ELEMENTS or result.bound > largest:
            raise Impossible
        names = [v if isinstance(v, str) else v.name for v in operands]
        self.nodes.append(helper.make_node(op_type, names, [name], name=f"{op_type}_{name}",
                                           **changes))
        if keep:
            self.values.append(result)
        return result

    def _finish(self) -> onnx.ModelProto:
        results = list(dict.fromkeys(
            [self.values[-1], *(self.choose(self.values) for _ in range(self.integer(0, 2)))]))
        outputs = [helper.make_tensor_value_info(
            v.name, helper.np_dtype_to_tensor_dtype(v.dtype), None) for v in results]
        graph = helper.make_graph(self.nodes, "random", self.infos, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)],
                                 ir_version=IR_VERSION)

    def other_inputs(self) -> dict[str, Array]:
        """Inputs of other sizes, where sizes are open."""
        return self.inputs_of({name: self.choose([s for s in SIZES[name] if s != 1])
                               for name in SIZES})

    def sizes_of_one(self) -> dict[str, int]:
        """Other values of the open sizes, of which some are 1, and none is 0."""
        return {name: 1 if self.chance(0.6) else self.choose([s for s in SIZES[name] if s])
                for name in sorted(self.used_sizes())}

    def inputs_of(self, sizes: Mapping[str, int]) -> dict[str, Array]:
        """Inputs for these values of the open sizes."""
        return {name: self.numbers(array.dtype, [
            sizes[d] if d else s for d, s in zip(self.dims[name], array.shape, strict=True)])
            for name, array in self.inputs.items()}


def element_kind(dtype: np.dtype[Any]) -> int:
    return helper.np_dtype_to_tensor_dtype(dtype)

