"""Compiled models, created by the pipeline or loaded from the cache."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from compiler.agreement import WeightsDigest
from compiler.diagnostics import Problem, StrataError, some_of
from compiler.io.arrays import contiguous, is_on_gpu, kind_of, to_numpy
from compiler.io.defaults import default_problems
from compiler.io.signature import Signature, signature_of
from compiler.io.structures import (
    complex_names,
    gather,
    in_parts,
    inverse,
    of_parts,
    orders_of,
    own_names,
    permuted,
    spread,
    structures_of,
)
from compiler.options import TEXT_SUFFIX, CompileOptions
from compiler.parameters import Parameters
from compiler.programs.collection import rare_collections
from compiler.programs.kept import slot_of
from compiler.recompilation import Made, Recompiler, times_of
from compiler.variants import Specialization, Variants
from dialects.records import dataclass

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel
    from compiler.instrument import Instrument
    from compiler.programs.graphs import GraphSlot
    from compiler.programs.kept import Slot
    from dialects.strata.array_type import ArrayType
    from dialects.strata.types import Array
    from targets.interface import Executable as Loaded


@dataclass(eq=False)
class Executable:
    """A compiled model.

        outputs = exe(x, y)                     in the model's order
        outputs = exe(input_ids=x, mask=y)      by the model's own names

    Arguments are NumPy arrays, torch tensors or anything with DLPack; the outputs are a list in
    the model's order, of the same kind as the first argument that is not NumPy's. Sequences are
    lists of NumPy arrays, and optional values may be None. Executables compare and hash by
    identity.
    """

    model: str | MemoryModel
    signature: Signature
    loaded: Loaded
    options: CompileOptions = field(repr=False)
    structures: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The inputs and outputs that are not C-contiguous tensors; see `compiler/io/structures.py`."""
    is_saved: bool = False
    """Whether it was loaded from a file that `save` wrote, which `model` then names."""
    parameters: Parameters | None = field(default=None, repr=False)
    """The weights whose values can be replaced, if there are any."""
    weights: str = field(default="", repr=False)
    """A hash of the weights of a model that is divided among ranks, before that."""

    @property
    def input_names(self) -> list[str]:
        return list(self.signature.input_names)

    @property
    def output_names(self) -> list[str]:
        return list(self.signature.output_names)

    @property
    def input_types(self) -> list[str]:
        """`f32[batch, 3, 224, 224]`, one per input."""
        return self._types(self.signature.input_names, self.signature.input_types)

    @property
    def output_types(self) -> list[str]:
        return self._types(self.signature.output_names, self.signature.output_types)

    def _types(self, names: Sequence[str], types: Sequence[ArrayType]) -> list[str]:
        """Types with the model's own order of dims."""
        orders = [self._orders.get(name) for name in names]
        return [type_.short if order is None else type_.permuted(inverse(order)).short
                for type_, order in zip(types, orders, strict=True)]

    @property
    def specializations(self) -> list[Specialization]:
        """The sizes that have programs of their own, the most recently used last: those that need
        other code than the general program has, and those for which the model was specialized."""
        return self.loaded.specializations if isinstance(self.loaded, Variants) else []

    def __call__(self, *inputs: Any, **named: Any) -> list[Any]:
        """Run the model. Raises ValueError or TypeError, naming the input that does not fit."""
        if self._complex:
            return self._in_parts(self._in_order(inputs, named))
        if self.structures and len(self._orders) < len(self.structures):
            strings: list[str] = []
            arrays = self.spread(inputs, named, strings)
            return list(self.gathered(self.run(arrays), strings).values())
        check = named or self.signature.defaults
        values = self._in_order(inputs, named) if check else inputs
        if self._orders:
            return self._reordered(values)
        return self._call(values)

    def _call(self, values: Sequence[Any]) -> list[Any]:
        stay = self.loaded.takes_gpu_tensors
        if stay and all([getattr(v, "is_cuda", False) for v in values]):
            return self.loaded.run(values)
        if all([type(v) is np.ndarray and v.flags.c_contiguous for v in values]):
            return self.loaded.run(values)
        arrays = [v if stay and is_on_gpu(v) else self._array(k, v) for k, v in enumerate(values)]
        outputs = self.loaded.run(arrays)
        back = next((kind for kind in map(kind_of, values) if kind is not None), None)
        return outputs if back is None else [back(array) for array in outputs]

    @cached_property
    def _orders(self) -> dict[str, tuple[int, ...]]:
        """The inputs and outputs whose memory has another order of dims."""
        return orders_of(self.structures)

    @cached_property
    def _complex(self) -> frozenset[str]:
        """The inputs and outputs that are complex numbers, if nothing else has a structure."""
        return complex_names(self.structures)

    def _in_parts(self, values: Sequence[Any]) -> list[Any]:
        """Run the model on views of complex numbers as reals, and return the reverse of such."""
        names, types = self.signature.input_names, self.signature.input_types
        arrays = [v if is_on_gpu(v) or kind_of(v) else self._array(k, v)
                  for k, v in enumerate(values)]
        given = [in_parts(v, type_) if name in self._complex else v
                 for name, type_, v in zip(names, types, arrays, strict=False)]
        return [of_parts(v) if name in self._complex else v
                for name, v in zip(self.signature.output_names, self._call(given), strict=True)]

    def _reordered(self, values: Sequence[Any]) -> list[Any]:
        """Run the model on views with dims in the order of memory, and return such views."""
        names = dict(enumerate(self.signature.input_names))
        given = [permuted(v, self._orders.get(names.get(k, ""))) for k, v in enumerate(values)]
        back = [self._orders.get(name) for name in self.signature.output_names]
        return [permuted(v, order and inverse(order))
                for v, order in zip(self._call(given), back, strict=True)]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the model on C-contiguous NumPy arrays in the model's order, with the least
        overhead.
        """
        try:
            return self.loaded.run(inputs)
        except (AttributeError, TypeError):
            _require_arrays(inputs, self.signature.input_names)
            raise

    def _array(self, place: int, value: Any) -> Array:
        """An argument as an array. Raises TypeError, naming the input, for what is none."""
        try:
            return to_numpy(value)
        except TypeError as error:
            name = [*self.signature.input_names, ""][min(place, len(self.signature.input_names))]
            raise TypeError(f"input {name!r} cannot be read: {error}") from None

    def spread(
        self, inputs: Sequence[Any], named: Mapping[str, Any], strings: list[str] | None = None
    ) -> list[Array]:
        """Flatten arguments, some of which are lists, None or strings, into tensors.

        `strings` collects the strings that the model does not know; `gathered` needs them.
        """
        own = own_names(self.input_names, self.structures)
        types = dict(zip(self.signature.input_names, self.signature.input_types, strict=True))
        found = spread({**dict(zip(own, inputs, strict=False)), **named}, self.structures, types,
                       strings)
        return self.signature.arrange({n: contiguous(a) for n, a in found.items()})

    def gathered(self, outputs: Sequence[Array], strings: Sequence[str] = ()) -> dict[str, Any]:
        """The outputs keyed by the model's own names, with sequences as lists."""
        arrays = dict(zip(self.output_names, outputs, strict=True))
        names = own_names(self.output_names, self.structures)
        return gather(names, arrays, self.structures, strings)

    def with_parameters(
        self, model: MemoryModel, values: Mapping[str, Array],
        tensors: Mapping[str, Any] | None = None,
    ) -> Executable | None:
        """The same code with other values of parameters, which `model` has.

        Nothing is compiled. None if the code depends on the values that it was compiled for.
        `tensors`: those on a device that hold weights, by name.
        """
        if self.parameters is None or type(self.loaded) not in (
                Variants, type(self.parameters.program)):
            return None  # programs for frequent sizes have these values folded in
        found = self.parameters.with_values(values, tensors)
        if found is None:
            return None
        loaded: Loaded = found.program
        if type(self.loaded) is Variants:
            loaded = Variants(loaded, replace(self.loaded.recompiler, model=model))
        return replace(self, model=model, loaded=loaded, parameters=found)

    def precision_error(self, inputs: Sequence[Array]) -> float:
        """The error of the outputs relative to the same model in f32, on these inputs.

        This is the largest deviation of any output, divided by its largest magnitude in f32. The
        model in f32 is compiled for this, or loaded from the cache.
        """
        from compiler.measuring.comparison import worst

        exact = compile_with(self.source(), replace(self.options, precision="f32"))
        return worst(self.run(inputs), exact.run(inputs))[0]

    def model_constants(self) -> list[Array]:
        """The constants of the imported model, which is read again for this."""
        from compiler.measuring.oddities import constants_of
        from compiler.pipeline.driver import Compiler

        state = Compiler(self.source(), self.options).read()
        return list(constants_of(state.module, state.context.weights))

    def text(self, level: str) -> str:
        """The model at a level, or as target code. It is lowered again for this.

        Raises StrataError for an unknown level.
        """
        from compiler.option_values import shown
        from compiler.pipeline.driver import Compiler, lower_to_text

        if not isinstance(cast(object, level), str):
            raise StrataError(f"level is {shown(level)}; it must be a text")
        return lower_to_text(Compiler(self.source(), self.options), level)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to a file, which `compiler.load` reads without compiling.

        Programs of the targets `cpu` and `cuda` can be saved, without `specialize` and
        `interpret`. The file replaces an older one as a whole, and only this user can read it.
        Raises StrataError for other programs, and for a disk that cannot be written.
        """
        from compiler.option_values import file_of
        from compiler.programs.saved import Program, save_program

        save_program(Program(self.signature, self.structures, self.loaded, self.options),
                     file_of("path", path))

    def source(self) -> str | MemoryModel:
        """The model. Raises StrataError for a program from a file, which does not hold it."""
        if not self.is_saved:
            return self.model
        raise StrataError(f"the program in {self.model} is machine code, without its model", [
            Problem("there are no levels to show and nothing to compile again",
                    hint="compile the model, and ask that executable")])

    def _in_order(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        names = self.signature.input_names
        if not named and len(inputs) == len(names):
            return list(inputs)
        if not inputs and len(named) == len(names) and all([n in named for n in names]):
            return [named[n] for n in names]
        given = dict(zip(names, inputs, strict=False))
        twice, unknown = given.keys() & named.keys(), named.keys() - set(names)
        missing = [n for n in names if n not in given and n not in named]
        if twice or unknown or missing or len(inputs) > len(names):
            raise ValueError(f"the model takes {self.signature.expected()}; given were "
                             f"{len(inputs)} inputs by position and "
                             f"{some_of(sorted(named)) or 'none'} by name"
                             + self._of_defaults(unknown, len(inputs) - len(names)))
        return [given[n] if n in given else named[n] for n in names]


    def _of_defaults(self, unknown: Collection[str], more: int) -> str:
        """Hints about given inputs that are constants: those in `unknown`, and `more` by position.
        """
        defaults = dict(self.signature.defaults)
        wanted = [*(name for name in defaults if name in unknown), *list(defaults)[:max(0, more)]]
        problems = default_problems(wanted, defaults)
        return "".join(f"\n- {p.what}\n  {p.hint}" for p in problems)


def _require_arrays(inputs: object, names: Sequence[str]) -> None:
    """Raise TypeError, naming the input, for what is no list of NumPy arrays."""
    if not isinstance(inputs, Sequence) or isinstance(inputs, str | bytes):
        raise TypeError(f"the inputs must be a list of arrays, not {type(inputs).__name__}")
    for name, value in zip(names, cast("Sequence[object]", inputs), strict=False):
        if not isinstance(value, np.ndarray | np.generic):
            raise TypeError(f"input {name!r} must be a NumPy array, not {type(value).__name__}")


@rare_collections()
def compile_with(
    model: str | MemoryModel, options: CompileOptions, instruments: Sequence[Instrument] = (),
    command: str = "",
) -> Executable:
    """The same as `compile`, with the options given."""
    found = made(model, options, instruments, command)
    loaded, plain = found.loaded, replace(options, dump_dir=None)
    if found.chooses and loaded.general is loaded:
        loaded = Variants(loaded, recompiler_of(model, plain, found))
    return Executable(model, found.signature, loaded, plain, found.structures,
                      parameters=found.parameters, weights=found.weights)


def recompiler_of(model: str | MemoryModel, options: CompileOptions, found: Made) -> Recompiler:
    """What compiles a model again."""
    is_text = str(model).endswith(TEXT_SUFFIX)
    refused = f"{model} is the text of a level, not a model" if is_text else ""
    return Recompiler(model, options, found.signature, found.structures, made, found.files, refused)


def made(
    model: str | MemoryModel, options: CompileOptions, instruments: Sequence[Instrument] = (),
    command: str = "",
) -> Made:
    """A compiled model, from the cache if it is there."""
    slot = slot_of(model, options, instruments)
    found = None if slot is None else slot.find()
    if slot is None or found is None:
        return _compiled(model, options, instruments, command, slot)
    facts = found.facts
    return Made(Signature.read(facts["signature"]), found.loaded, facts["structures"],
                facts["chooses"], _times(slot.paths), found.parameters,
                facts.get("weights", ""))


def _compiled(
    model: str | MemoryModel, options: CompileOptions, instruments: Sequence[Instrument],
    command: str, slot: Slot | GraphSlot | None,
) -> Made:
    """Compile a model, and store the result in its cache slot, if it has one."""
    from compiler.pipeline.driver import Compiler
    from compiler.pipeline.source import weight_labels
    from dialects.strata.sizes import has_choices

    digest = WeightsDigest(bool(options.mesh))
    watching = [*dumps_of(options), *instruments, digest]
    compilation = Compiler(model, options, watching, command)
    compilation.begin()
    snapshot = compilation.keep() if options.specialize is not None else None
    state = compilation.prepare()
    signature = signature_of(state.module)
    if options.dump_dir and compilation.target.lowers:
        compilation.emit(state, compilation.target.levels[0])
    loaded = compilation.load(state)
    structures = structures_of(state.module)
    found = Made(signature, loaded, structures, has_choices(state.module),
                 _times(compilation.files or [str(model)]),
                 Parameters.of(loaded, state.context.weights, frozenset(
                     key for key, _ in weight_labels(state.module))), digest.text)
    if slot is not None:
        facts = {"signature": signature.facts(), "structures": structures,
                 "chooses": found.chooses, "weights": digest.text}
        slot.keep(compilation.files, facts, loaded, found.parameters)
    if found.parameters is not None:
        found.parameters.release()
    if options.specialize is None or snapshot is None or not signature.symbols():
        return found
    from compiler.specialization import Specializer, Specializing

    shared = replace(snapshot, known=state.context.weights.arrays)
    plain = replace(options, dump_dir=None)
    specializer = Specializer(shared, signature, plain, recompiler_of(model, plain, found))
    return found._replace(loaded=Specializing(loaded, specializer, options.specialize))


def _times(paths: Sequence[str]) -> Mapping[str, Sequence[int]]:
    return {path: times for path in paths if (times := times_of(path))}


def dumps_of(options: CompileOptions) -> list[Instrument]:
    """The dump that the options request, if any."""
    if not options.dump_dir:
        return []
    from compiler.instrument.dump import Dump

    return [Dump(options.dump_dir, options.dump_weights)]
