"""The signature of a model: names and types of its inputs and outputs, and random inputs.

This module does not import xDSL, which cached models do not need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from compiler.diagnostics import Problem, StrataError
from compiler.io.defaults import default_problems, defaults_of
from compiler.suggestions import nearest
from dialects.strata.array_type import ArrayType
from dialects.strata.binding import EvaluationError, bind_sizes
from dialects.symbolic.symbol import Symbol

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from dialects.strata.assumptions import Assumption
    from dialects.strata.types import Array

DEFAULT_SIZE = 2
"""The value of unspecified sizes in random inputs, where it fits the model."""
_OTHER_SIZES = (3, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""What is tried where it does not fit."""


class Signature(NamedTuple):
    """Names and types, in the model's order. Sizes may be symbols."""

    input_names: tuple[str, ...]
    input_types: tuple[ArrayType, ...]
    output_names: tuple[str, ...]
    output_types: tuple[ArrayType, ...]
    defaults: tuple[tuple[str, str], ...] = ()
    """The inputs that have become constants, and their sizes; see `compiler/io/defaults.py`."""
    examples: tuple[tuple[str, int], ...] = ()
    """Sizes for random inputs, where the compiled code cannot do with DEFAULT_SIZE."""

    def expected(self) -> str:
        """The inputs, as messages name them: `x: f32[batch, 3]`."""
        pairs = zip(self.input_names, self.input_types, strict=True)
        return ", ".join(f"'{name}': {type_.short}" for name, type_ in pairs) or "no inputs"

    def symbols(self) -> list[Symbol]:
        """The size symbols of the inputs, in order of appearance."""
        found = [s for type_ in self.input_types for size in type_.shape
                 for s in sorted(size.symbols)]
        return list(dict.fromkeys(found))

    # ------------------------------------------------------------------ checking
    def arrange(self, named: Mapping[str, Array]) -> list[Array]:
        """The arrays in the model's order. Raises StrataError for arrays that do not fit the
        model.
        """
        problems = self.unknown_inputs(named)
        problems += [Problem(f"input '{name}' is missing")
                     for name in self.input_names if name not in named]
        for name, type_ in zip(self.input_names, self.input_types, strict=True):
            if name in named:
                problems += _misfits(name, type_, named[name])
        arrays = [named[name] for name in self.input_names if name in named]
        if not problems:
            problems += self._contradictions(arrays)
        if problems:
            raise StrataError("the inputs do not fit the model", [*problems, Problem(
                f"it takes {self.expected()}")])
        return arrays

    def unknown_inputs(self, names: Iterable[str]) -> list[Problem]:
        """A problem for each unknown input name, with the most similar known one."""
        unknown = [name for name in names if name not in self.input_names]
        constant = default_problems(unknown, dict(self.defaults))
        near = {name: nearest(name, self.input_names) for name in unknown
                if name not in dict(self.defaults)}
        return constant + [Problem(f"the model has no input '{name}'",
                        hint=f"did you mean '{found[0]}'?" if found else "")
                for name, found in near.items()]

    def _contradictions(self, arrays: Sequence[Array]) -> list[Problem]:
        try:
            bind_sizes(self.input_types, arrays, self.input_names)
        except EvaluationError as error:
            return [Problem(str(error))]
        return []

    # ------------------------------------------------------------------ random inputs
    def random(
        self, seed: int, sizes: Mapping[Symbol, int],
        shapes: Mapping[str, Sequence[int | str]] | None = None,
    ) -> dict[str, Array]:
        """An array per input: floats standard normal, integers 0 or 1 (valid as indices of almost
        anything). `example` gives the sizes that `sizes` lacks; `shapes` fixes whole shapes. Raises
        StrataError for arrays that no memory holds.
        """
        return {name: self.random_input(name, seed, self.shape_of(name, sizes, shapes))
                for name in self.input_names}

    def random_input(self, name: str, seed: int, shape: tuple[int, ...]) -> Array:
        """The random array of one input, independent of the others. Raises StrataError likewise."""
        k = self.input_names.index(name)
        try:
            return _random(self.input_types[k], shape, np.random.default_rng([seed, k]))
        except (MemoryError, ValueError):  # the two exceptions of NumPy for sizes beyond all memory
            raise StrataError(f"there is no memory for input '{name}' of shape "
                              f"{list(shape)}") from None

    def shape_of(
        self, name: str, sizes: Mapping[Symbol, int],
        shapes: Mapping[str, Sequence[int | str]] | None = None,
    ) -> tuple[int, ...]:
        """The shape of an input with these sizes; `example` gives those that are missing."""
        type_ = self.input_types[self.input_names.index(name)]
        given = _given(shapes, name)
        values = {s: self.example(s) for e in type_.shape for s in e.symbols} | {**sizes}
        return tuple(int(e.evaluate(values)) for e in type_.shape) if given is None else given

    def example(self, symbol: Symbol) -> int:
        """A size for random inputs."""
        return dict(self.examples).get(symbol.name, DEFAULT_SIZE)

    def told(self, symbols: Iterable[Symbol]) -> str:
        """The example sizes of some symbols, as messages name them: `batch=2, height=32`."""
        return ", ".join(f"{s.name}={self.example(s)}" for s in symbols)

    def unsized(self, sizes: Mapping[Symbol, int]) -> list[Symbol]:
        """The symbols to which `random` assigns example sizes."""
        return [s for s in self.symbols() if s not in sizes]

    # ------------------------------------------------------------------ files
    def facts(self) -> dict[str, Any]:
        """All fields in a form that JSON can represent."""
        return {"input_names": self.input_names, "output_names": self.output_names,
                "input_types": [t.facts() for t in self.input_types],
                "output_types": [t.facts() for t in self.output_types],
                "defaults": self.defaults, "examples": self.examples}

    @staticmethod
    def read(facts: Mapping[str, Any]) -> Signature:
        """The inverse of `facts`."""
        return Signature(
            tuple(facts["input_names"]), tuple(map(ArrayType.read, facts["input_types"])),
            tuple(facts["output_names"]), tuple(map(ArrayType.read, facts["output_types"])),
            tuple((str(name), str(sizes)) for name, sizes in facts["defaults"]),
            tuple((str(name), int(size)) for name, size in facts["examples"]))


def signature_of(module: ModuleOp) -> Signature:
    """The signature of a module at any level. Raises StrataError if it contains no model."""
    from dialects.host import host_function
    from dialects.strata.func import FuncOp, main_function
    from dialects.strata.sizes import assumptions_of

    defaults = tuple(defaults_of(module).items())
    if any(isinstance(op, FuncOp) for op in module.body.block.ops):
        function = main_function(module)
        inputs = [a.type for a in function.body.block.args]
        outputs = list(function.result_types_.data)
        return _with_examples(Signature(
            tuple(function.input_names), _array_types(inputs), tuple(function.output_names),
            _array_types(outputs), defaults), assumptions_of(function))
    try:
        host = host_function(module)
    except ValueError as error:
        raise StrataError(f"there is no model to run: {error}") from None
    inputs = [a.type for a in host.input_arguments]
    outputs = host.output_types
    return _with_examples(Signature(
        tuple(host.input_names), _array_types(inputs), tuple(host.output_names),
        _array_types(outputs), defaults), assumptions_of(host))


def _with_examples(signature: Signature, assumptions: Sequence[Assumption]) -> Signature:
    """The signature with sizes that fit the assumptions: the default, and greater ones for sizes in
    assumptions that it breaks."""
    sizes = dict.fromkeys(signature.symbols(), DEFAULT_SIZE)
    known = [a for a in assumptions if a.symbols <= sizes.keys()]
    for other in (*_OTHER_SIZES, None):
        broken = {s for a in known if not a.holds(sizes) for s in a.symbols}
        if not broken:
            changed = tuple((s.name, n) for s, n in sizes.items() if n != DEFAULT_SIZE)
            return signature._replace(examples=changed)
        sizes |= dict.fromkeys(broken, other or DEFAULT_SIZE)
    return signature


def _array_types(types: Sequence[object]) -> tuple[ArrayType, ...]:
    from dialects.strata.types import BufferType, TensorType

    return tuple(ArrayType.of(t) for t in types if isinstance(t, TensorType | BufferType))


def _misfits(name: str, type_: ArrayType, array: Array) -> list[Problem]:
    """The problems of one array, except sizes that contradict those of another."""
    problems: list[Problem] = []
    if array.dtype != type_.dtype:
        problems.append(Problem(f"input '{name}' is {array.dtype}, it must be {type_.dtype}"))
    wrong = array.ndim != type_.rank or any(
        e.constant not in (None, n) for e, n in zip(type_.shape, array.shape, strict=True))
    if wrong:
        problems.append(Problem(
            f"input '{name}' has shape {list(array.shape)}, it must be {type_.short}"))
    return problems


def _given(
    shapes: Mapping[str, Sequence[int | str]] | None, name: str
) -> tuple[int, ...] | None:
    sizes = (shapes or {}).get(name, ("",))
    numbers = [n for n in sizes if isinstance(n, int)]
    return tuple(numbers) if len(numbers) == len(sizes) else None


def _random(type_: ArrayType, shape: tuple[int, ...], source: np.random.Generator) -> Array:
    if type_.is_float:
        numbers = source.standard_normal(shape, np.float32)
        has_sign = type_.element != "f8E8M0FNU"
        return (numbers if has_sign else np.abs(numbers)).astype(type_.dtype)
    return source.integers(0, 2, shape).astype(type_.dtype)
