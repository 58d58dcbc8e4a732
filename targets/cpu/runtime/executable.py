"""A compiled model in this process: binds sizes, provides memory, and calls the native entry.

Small models take microseconds. A call whose inputs have the types and shapes of the previous call
therefore does little more than write addresses into a table. Nothing here imports xDSL or LLVM.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dialects.strata.binding import EvaluationError, bind_sizes
from dialects.strata.mapped import MappedFiles, release
from dialects.strata.parallel import in_threads
from dialects.symbolic.symbol import Symbol
from targets.call_states import CallStates
from targets.cpu.build.address import address_of
from targets.cpu.runtime.arenas import LARGE, Arena, Need
from targets.cpu.runtime.calls import Binding, Bound, CallState, Kind, kinds, most_states
from targets.cpu.runtime.checks import EXCHANGE, SIGNAL
from targets.cpu.runtime.donation import Home, homes, lender, shared
from targets.cpu.runtime.results import Result
from targets.cpu.runtime.threads import FIRST_ARGUMENT, NO_POOL, thread_pool, torch_is_loaded
from targets.interface import Executable, Shape, T
from targets.memory import ALIGNMENT, LEAST, aligned_bytes

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore
    from targets.cpu.build.native import Library
    from targets.cpu.runtime.plan import RunPlan
    from targets.interface import Lend

_LARGE = 1 << 20
"""The size in bytes from which copying a constant costs more than unaligned access to it."""

_PIECE = 2 << 20
"""How many bytes of a constant are copied at a time."""


class Source(NamedTuple):
    """The weight that a constant holds, and the dtype that code expects."""

    key: str
    dtype: np.dtype[Any]


def with_open(
    constants: Sequence[Array], sources: Sequence[Source | None], weights: WeightStore
) -> list[Array]:
    """The constants, with those of a store's parameters in place of the others."""
    files = MappedFiles.around(constants)
    return [own if source is None or not weights.is_open_key(source.key) else placed(
        weights.arrays[source.key], source.dtype, files)
        for own, source in zip(constants, sources, strict=True)]


class CpuExecutable(Executable):
    """The native entry of the host function, with its constants. Several threads may call it at
    once."""

    def __init__(
        self, plan: RunPlan, library: Library, constants: Sequence[Array], threads: int,
        sources: Sequence[Source | None] = (),
    ):
        """`constants`: in table order, in their final places (see `placed`). `sources`: for each
        the weight that it holds, if any."""
        self.plan, self.library, self.constants = plan, library, list(constants)
        self.sources = sources
        self.input_names, self.output_names = list(plan.input_names), list(plan.output_names)
        self._entry, self._steps = _entry_function(library.address), plan.steps
        threads = 1 if plan.serial else threads
        self._pool = NO_POOL if threads == 1 else thread_pool()
        self._threads, self._beside_torch = threads, torch_is_loaded()
        self._returns, self._poisons = any(plan.returned), plan.poisons
        self.takes_addresses = not (self._returns or self._poisons)
        self._written: Mapping[int, int] = {}
        self.calls = CallStates(partial(CallState, plan, self.constants, self._pool), most_states)

    @property
    def exchanges(self) -> Sequence[Any]:
        return self.plan.exchanges

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs in model order; see `Executable.run`."""
        state = self.calls.take()
        try:
            binding = state.binding
            if binding is None or not binding.fits(inputs):
                inputs, binding = self._bind(state, inputs)
            if state.need is not None:
                state.borrow(state.need)
            outputs = [result.array() for result in binding.outputs]
            if self._poisons:
                _poison([*outputs, state.arena])
            table, place = state.table, FIRST_ARGUMENT
            for array in inputs:
                table[place] = address_of(array)
                place += 1
            for array in outputs:
                table[place] = address_of(array)
                place += 1
            if self._threads > 1:
                self._share(state)
            if self._in_steps(state) if self._steps else self._entry(state.address):
                raise self._failure(state)
            return self._with_returned(state, outputs) if self._returns else outputs
        finally:
            if state.borrowed is not None:
                state.give_back(state.borrowed)
            self.calls.give(state)

    def donate(self, inputs: Mapping[int, int]) -> Collection[int]:
        """For calls by addresses alone; `run` always returns new memory."""
        self._written = shared(self.plan, inputs)
        return self._written.keys()

    def caller(
        self, make: Callable[[Sequence[Shape], Sequence[Lend]],
                             Callable[[Sequence[T]], Iterable[T]]],
        address: Callable[[T], int], shape: Callable[[T], Shape], donated: Collection[int] = (),
    ) -> Callable[[Sequence[Any], Sequence[T]], list[T]]:
        """A call with the sizes of the last one does little more than write addresses."""
        take, give, calls = self.calls.take, self.calls.give, self.calls
        entry, steps, threads = self._entry, self._steps, self._threads
        places = slice(FIRST_ARGUMENT, FIRST_ARGUMENT + len(
            self.plan.inputs) + len(self.plan.outputs))

        def bind(state: CallState, sizes: Sequence[Any], inputs: Sequence[T]) -> Bound:
            """Bind a state to these inputs."""
            examples = [np.broadcast_to(np.int8(0), shape(v)) for v in inputs]
            values = self._sizes(examples)
            binding = self._binding_of([], values)
            state.bind(binding)
            placed = homes(self.plan, donated, values, binding.outputs)
            placed |= {k: Home(given, 0) for k, given in self._written.items()
                       if binding.outputs[k].nbytes >= LEAST}
            state.bound = Bound(make, sizes, make(
                [result.shape for result in binding.outputs],
                [lender(r, placed.get(k), address) for k, r in enumerate(binding.outputs)]))
            return state.bound

        def call(sizes: Sequence[Any], inputs: Sequence[T]) -> list[T]:
            state = take()
            try:
                bound = state.bound
                if bound is None or bound.sizes != sizes or bound.by is not make:
                    bound = bind(state, sizes, inputs)
                if state.need is not None:
                    state.borrow(state.need)
                outputs = [*bound.make(inputs)]
                state.table[places] = [*map(address, inputs), *map(address, outputs)]
                if threads > 1 and (state.threads != threads or calls.have_overlapped
                                    or state.pool.lost or not self._beside_torch):
                    self._share(state)
                if self._in_steps(state) if steps else entry(state.address):
                    raise self._failure(state)
                return outputs
            finally:
                if state.borrowed is not None:
                    state.give_back(state.borrowed)
                give(state)

        return call

    def _in_steps(self, state: CallState) -> int:
        """Run the launches one by one, until a check fails."""
        assert state.binding is not None
        entry, address, sizes = self._entry, state.address, state.binding.sizes
        last = len(sizes) - 1
        for step in range(self._steps):
            sizes[last] = step
            if entry(address):
                return 1
        return 0

    def with_weights(self, weights: WeightStore) -> CpuExecutable | None:
        if len(self.sources) != len(self.constants):
            return None
        constants = with_open(self.constants, self.sources, weights)
        return CpuExecutable(self.plan, self.library, constants, self._threads, self.sources)

    def native_call(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """A call of the machine code alone, on these inputs, with outputs that it overwrites.

        For measurements only: nothing else may run this executable at the same time.
        """
        kept = [self, inputs, self.run(inputs)]
        entry, state = self._entry, self.calls.take()
        address = state.address
        if state.need is not None:  # never given back, as the state
            state.borrow(state.need)

        def call() -> object:
            if self._in_steps(state) if self._steps else entry(address):
                raise self._failure(state)
            return kept

        return call

    def share(self, other: Executable) -> None:
        there: dict[int, list[Array]] = {}
        for array in other.constants if isinstance(other, CpuExecutable) else ():
            there.setdefault(array.nbytes, []).append(array)
        for k, own in enumerate(self.constants):
            self.constants[k] = next(
                (a for a in there.get(own.nbytes, ()) if _replaces(a, own)), own)

    def _failure(self, state: CallState) -> Exception:
        """The error of a call that ended early. Raises what a signal handler has raised."""
        number, seen = state.heap.failure()
        check = self.plan.checks[number]
        if check.kind == SIGNAL:
            state.heap.raise_interruption()
        if check.kind == EXCHANGE and state.exchanger is not None:
            return state.exchanger.failure()
        return check.error(seen, self.plan.checks)

    def _share(self, state: CallState) -> None:
        """Set the threads of this call; simultaneous calls share them. Once PyTorch is loaded, its
        pool replaces ours."""
        if not self._beside_torch and torch_is_loaded():
            self._pool, self._beside_torch = thread_pool(), True
        busy, count = self.calls.busy, self._threads
        if busy > 1:
            count = max(1, count // busy)
        state.share(self._pool, count if self._pool.claim() else 1)

    def _with_returned(self, state: CallState, outputs: Sequence[Array]) -> list[Array]:
        """All outputs in order: those allocated before the call, and those allocated during it."""
        given, returned = iter(outputs), iter(state.heap.take_outputs())
        return [next(given if r is None else returned) for r in self.plan.returned]

    # ------------------------------------------------------------------ inputs of new shapes
    def _bind(self, state: CallState, inputs: Sequence[Array]) -> tuple[list[Array], Binding]:
        """The inputs as C-contiguous arrays, and their binding."""
        arrays = self._checked(inputs)
        binding = state.binding
        if binding is None or not binding.fits(arrays):
            binding = self._binding_of(kinds(arrays), self._sizes(arrays))
            state.bind(binding)
        return arrays, binding

    def _checked(self, inputs: Sequence[Array]) -> list[Array]:
        """The inputs as C-contiguous arrays. Raises ValueError for a wrong count or dtype."""
        if len(inputs) != len(self.plan.inputs):
            names = ", ".join(self.input_names)
            raise ValueError(
                f"the model takes {len(self.plan.inputs)} inputs ({names}), not {len(inputs)}")
        for name, array, type_ in zip(self.input_names, inputs, self.plan.inputs, strict=True):
            if array.dtype != type_.dtype:
                raise ValueError(f"input {name!r} must be {type_.dtype}, not {array.dtype}")
        return [_in_memory(a) for a in inputs]

    def _sizes(self, inputs: Sequence[Array]) -> dict[Symbol, int]:
        """The values of the size symbols. Raises ValueError for shapes that the model rejects."""
        try:
            values = bind_sizes(self.plan.inputs, inputs, self.input_names)
        except EvaluationError as error:
            raise ValueError(str(error)) from error
        for assumption in self.plan.assumptions:
            if assumption.symbols <= values.keys():
                assumption.check(values)
        return values

    def _binding_of(self, inputs: list[Kind], values: dict[Symbol, int]) -> Binding:
        outputs = tuple(Result(tuple(int(s.evaluate(values)) for s in t.shape), t.dtype)
                        for t in self.plan.outputs)
        sizes = [values.get(name, 0) for name in self.plan.size_names]
        arena_bytes = int(self.plan.arena_bytes.evaluate(values))
        _check_memory(arena_bytes, outputs, values)
        words = (ctypes.c_int64 * (1 + len(sizes)))(*sizes)  # the last one: which step runs
        arena = Arena(arena_bytes) if arena_bytes < LARGE else Need(arena_bytes)
        return Binding(inputs, words, outputs, arena)


def _entry_function(address: int) -> Callable[..., int]:
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(address)


# ---------------------------------------------------------------------- memory
def _check_memory(arena: int, outputs: Sequence[Result], sizes: Mapping[Symbol, int]) -> None:
    """Raises ValueError if a call needs more memory than the machine has."""
    results = sum(result.nbytes for result in outputs)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if arena + results <= there:
        return
    given = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    raise ValueError(f"a call needs {results} bytes for results and {arena} bytes for intermediate "
                     f"values{given and ' with '}{given}; this machine has {there}")


def _poison(arrays: Sequence[Array]) -> None:
    """Fill memory with NaN or -1, so that a read before the first write shows in the results."""
    for array in arrays:
        array.reshape(-1).view(np.uint8).fill(0xFF)


def _in_memory(array: Array) -> Array:
    """A C-contiguous array; a NumPy scalar, which has no address of its own, becomes an array."""
    whole = np.asarray(array)
    return whole if whole.flags.c_contiguous else np.ascontiguousarray(whole)


def _replaces(array: Array, own: Array) -> bool:
    """Whether a constant can be used instead of another one: equal bytes, equally aligned."""
    aligned = array.dtype == own.dtype or array.ctypes.data % ALIGNMENT == 0
    return aligned and np.array_equal(array.reshape(-1).view(np.uint8),
                                      own.reshape(-1).view(np.uint8))


def placed(array: Array, dtype: np.dtype[Any], files: MappedFiles) -> Array:
    """A constant of an element type, aligned to a cache line; copied if needed.

    A large one stays in place if its elements are aligned, unless it belongs to a mapped file,
    which may be truncated or rewritten while the model is in use.
    """
    array = np.ascontiguousarray(array, dtype)
    wanted = ALIGNMENT if array.nbytes < _LARGE else dtype.itemsize
    if array.ctypes.data % wanted == 0 and array.size and not files.hold(array):
        return array
    memory, given = aligned_bytes(array.nbytes), array.reshape(-1).view(np.uint8)

    def copy(start: int) -> None:
        piece = given[start: start + _PIECE]
        memory[start: start + piece.size] = piece
        release(piece)

    in_threads(copy, range(0, given.size, _PIECE))
    return memory
