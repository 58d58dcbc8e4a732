"""A compiled model in this process: binds sizes, provides memory, and calls the native entry.

Small models take microseconds, so a call whose inputs have the types and shapes of the call before
does little more than to write addresses into a table. Nothing here imports xDSL or LLVM.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dialects.strata.binding import EvaluationError, bind_sizes
from dialects.strata.mapped import MappedFiles
from dialects.strata.parallel import in_threads
from dialects.symbolic.symbol import Symbol
from targets.call_states import CallStates
from targets.cpu.build.address import address_of
from targets.cpu.runtime.calls import Binding, CallState, kinds, most_states
from targets.cpu.runtime.checks import SIGNAL
from targets.cpu.runtime.results import Result
from targets.cpu.runtime.threads import FIRST_ARGUMENT, NO_POOL, thread_pool, torch_is_loaded
from targets.interface import Executable
from targets.memory import ALIGNMENT, aligned_bytes

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from targets.cpu.build.native import Library
    from targets.cpu.runtime.plan import RunPlan

_LARGE = 1 << 20
"""Bytes from which on a copy of a constant costs more than cache lines that are read twice."""

_PIECE = 2 << 20
"""Bytes of a constant that are copied at a time."""


class CpuExecutable(Executable):
    """The host function's entry with its constants. Any number of threads may call it at once."""

    def __init__(
        self, plan: RunPlan, library: Library, constants: Sequence[Array], threads: int
    ):
        """`constants`: in table order, where they may stay: see `placed`."""
        self.plan, self.library, self.constants = plan, library, constants
        self.input_names, self.output_names = list(plan.input_names), list(plan.output_names)
        self._entry = _entry_function(library.address)
        self._pool = NO_POOL if threads == 1 else thread_pool()
        self._threads, self._beside_torch = threads, torch_is_loaded()
        self._returns, self._poisons = any(plan.returned), plan.poisons
        self.calls = CallStates(partial(CallState, plan, constants, self._pool), most_states)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs in model order; see `Executable.run`."""
        state = self.calls.take()
        try:
            binding = state.binding
            if binding is None or not binding.fits(inputs):
                inputs, binding = self._bind(state, inputs)
            outputs = [result.array() for result in binding.outputs]
            if self._poisons:
                _poison([*outputs, binding.arena])
            table, place = state.table, FIRST_ARGUMENT
            for array in inputs:
                table[place] = address_of(array)
                place += 1
            for array in outputs:
                table[place] = address_of(array)
                place += 1
            if self._threads > 1:
                self._share(state)
            if self._entry(state.address):
                raise self._failure(state)
            return self._with_returned(state, outputs) if self._returns else outputs
        finally:
            self.calls.give(state)

    def native_call(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """A call of the machine code alone, on these inputs and with outputs that it writes again.

        For measuring: nothing else may run this executable meanwhile.
        """
        kept = [self, inputs, self.run(inputs)]
        entry, state = self._entry, self.calls.take()
        address = state.address

        def call() -> object:
            if entry(address):
                raise self._failure(state)
            return kept

        return call

    def _failure(self, state: CallState) -> Exception:
        """Why the call has ended early. Raises what the handler of a signal has raised."""
        number, seen = state.heap.failure()
        check = self.plan.checks[number]
        if check.kind == SIGNAL:
            state.heap.raise_interruption()
        return check.error(seen)

    def _share(self, state: CallState) -> None:
        """The threads of this call: calls at once share them. PyTorch's pool takes the place of
        ours once it is there."""
        if torch_is_loaded() and not self._beside_torch:
            self._pool, self._beside_torch = thread_pool(), True
        count = self._threads // max(1, self.calls.busy) if self._pool.claim() else 1
        state.share(self._pool, max(1, count))

    def _with_returned(self, state: CallState, outputs: Sequence[Array]) -> list[Array]:
        """All outputs in order: those that were allocated before the call, and during it."""
        given, returned = iter(outputs), iter(state.heap.take_outputs())
        return [next(given if r is None else returned) for r in self.plan.returned]

    # ------------------------------------------------------------------ other inputs than before
    def _bind(self, state: CallState, inputs: Sequence[Array]) -> tuple[list[Array], Binding]:
        """The inputs, C-contiguous, and what they are bound to."""
        arrays = self._checked(inputs)
        binding = state.binding
        if binding is None or not binding.fits(arrays):
            binding = self._new_binding(arrays)
            state.bind(binding)
        return arrays, binding

    def _checked(self, inputs: Sequence[Array]) -> list[Array]:
        """The inputs, C-contiguous. Raises ValueError for a wrong count or dtype."""
        if len(inputs) != len(self.plan.inputs):
            names = ", ".join(self.input_names)
            raise ValueError(
                f"the model takes {len(self.plan.inputs)} inputs ({names}), not {len(inputs)}")
        for name, array, type_ in zip(self.input_names, inputs, self.plan.inputs, strict=True):
            if array.dtype != type_.dtype:
                raise ValueError(f"input {name!r} must be {type_.dtype}, not {array.dtype}")
        return [_in_memory(a) for a in inputs]

    def _sizes(self, inputs: Sequence[Array]) -> dict[Symbol, int]:
        """The size symbols' values. Raises ValueError for shapes that the model does not take."""
        try:
            values = bind_sizes(self.plan.inputs, inputs, self.input_names)
        except EvaluationError as error:
            raise ValueError(str(error)) from error
        for assumption in self.plan.assumptions:
            if assumption.symbols <= values.keys():
                assumption.check(values)
        return values

    def _new_binding(self, inputs: Sequence[Array]) -> Binding:
        values = self._sizes(inputs)
        outputs = tuple(Result(tuple(int(s.evaluate(values)) for s in t.shape), t.dtype)
                        for t in self.plan.outputs)
        sizes = [values.get(name, 0) for name in self.plan.size_names]
        arena_bytes = int(self.plan.arena_bytes.evaluate(values))
        _check_memory(arena_bytes, outputs, values)
        return Binding(kinds(inputs), (ctypes.c_int64 * max(1, len(sizes)))(*sizes), outputs,
                        aligned_bytes(arena_bytes))


def _entry_function(address: int) -> Callable[..., int]:
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(address)


# ---------------------------------------------------------------------- memory
def _check_memory(arena: int, outputs: Sequence[Result], sizes: Mapping[Symbol, int]) -> None:
    """Raises ValueError where a call takes more memory than the machine has."""
    results = sum(result.nbytes for result in outputs)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if arena + results <= there:
        return
    given = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    raise ValueError(f"a call takes {results} bytes for results and {arena} bytes for what lies "
                     f"between{given and ' with '}{given}; this machine has {there}")


def _poison(arrays: Sequence[Array]) -> None:
    """Fill memory with what is a NaN, or -1: who reads it before it is written, shows it."""
    for array in arrays:
        array.reshape(-1).view(np.uint8).fill(0xFF)


def _in_memory(array: Array) -> Array:
    """A C-contiguous array; a number of NumPy's, which has no address of its own, becomes one."""
    whole = np.asarray(array)
    return whole if whole.flags.c_contiguous else np.ascontiguousarray(whole)


def placed(array: Array, dtype: np.dtype[Any], files: MappedFiles) -> Array:
    """A constant of an element type on a cache line's boundary; copied if needed.

    A large one stays where it is if its elements are aligned, unless it is of a mapped file: that
    may be cut short or written again while the model is used.
    """
    array = np.ascontiguousarray(array, dtype)
    wanted = ALIGNMENT if array.nbytes < _LARGE else dtype.itemsize
    if array.ctypes.data % wanted == 0 and array.size and not files.hold(array):
        return array
    memory, given = aligned_bytes(array.nbytes), array.reshape(-1).view(np.uint8)

    def copy(start: int) -> None:
        memory[start: min(start + _PIECE, given.size)] = given[start: start + _PIECE]

    in_threads(copy, range(0, given.size, _PIECE))
    return memory
