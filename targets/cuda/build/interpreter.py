"""Runs models in Triton's interpreter on the CPU: the generated source itself, without a GPU.

It is slow, and meant for checking what a GPU would compute. The interpreter is switched on when
Triton is imported, so it needs a process of its own.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation

from dialects.block import KernelOp, StoreOp
from dialects.host import ForeignLaunchOp
from dialects.strata import types as t
from dialects.strata.types import Array, BufferType
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from targets.cuda.build.compile import triton_version
from targets.cuda.build.source import NARROW_ELEMENTS
from targets.cuda.emit import EmitOptions, emit_kernel
from targets.cuda.errors import CudaError
from targets.cuda.planning.foreign import foreign_source, planned_foreign, sizes_of
from targets.cuda.planning.plan import host_notes
from targets.interpreted import InterpretedHost

_WORKER = Path(__file__).parent / "workers" / "interpret_kernels.py"
_ELEMENTS: dict[Attribute, str] = {
    t.f16: "float16", t.bf16: "bfloat16", t.f32: "float32", t.f64: "float64",
    t.i16: "int16", t.i32: "int32", t.i64: "int64",
    **dict.fromkeys((t.i1, t.i2, t.i4, t.i6, t.i8, *t.NARROW_FLOATS), "int8"),
}


class Interpreter:
    """Triton's interpreter in its own process; each kernel is emitted at its first run."""

    def __init__(self, exact: bool = False) -> None:
        triton_version()
        self._options = EmitOptions(interpreted=True, exact=exact)
        self._folder = tempfile.TemporaryDirectory(prefix="strata-triton-")
        self._sources: dict[tuple[Operation, bool], tuple[str, str]] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL)
        self._finalizer = weakref.finalize(self, _stop, self._process)

    def run(
        self, kernel: Operation, buffers: Sequence[Array], sizes: Mapping[Symbol, int]
    ) -> None:
        """Run a kernel on C-contiguous arrays, in place. Raises CudaError naming the kernel."""
        assert isinstance(kernel, KernelOp | ForeignLaunchOp)
        programs = _programs(kernel, sizes)
        if 0 in programs:
            return
        wide = any(b.size > NARROW_ELEMENTS for b in buffers)
        path, name = self._source(kernel, wide)
        elements = [_element(b.type) for b in kernel.buffers]
        places = [(b.ctypes.data, b.nbytes) for b in buffers]  # joined kernels have some twice
        memories = list(dict.fromkeys(places))
        content = [buffers[places.index(place)].tobytes() for place in memories]
        pointers = [(memories.index(p), e) for p, e in zip(places, elements, strict=True)]
        values = [sizes[name] for name in _size_names(kernel)]
        done = self._ask(kernel, (path, name, programs, content, pointers, values))
        for k in _written(kernel):
            buffer, result = buffers[k], done[pointers[k][0]]
            buffer[...] = np.frombuffer(result, buffer.dtype).reshape(buffer.shape)

    def _source(self, kernel: KernelOp | ForeignLaunchOp, wide: bool) -> tuple[str, str]:
        """The file of a kernel's source, and the name of its function; `wide`: with offsets of 64
        bits."""
        if (kernel, wide) not in self._sources:
            source = foreign_source(kernel) if isinstance(
                kernel, ForeignLaunchOp) else emit_kernel(
                    kernel, replace(self._options, wide=wide))
            path = Path(self._folder.name) / f"{len(self._sources)}_{source.name}.py"
            path.write_text(source.text)
            self._sources[kernel, wide] = str(path), source.name
        return self._sources[kernel, wide]

    def _ask(self, kernel: KernelOp | ForeignLaunchOp, request: Any) -> list[bytes]:
        assert self._process.stdin is not None and self._process.stdout is not None
        name = f"kernel @{_name(kernel)}"
        try:
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
            done, reply = pickle.load(self._process.stdout)
        except (BrokenPipeError, EOFError):
            raise CudaError(f"{name} ended the process of Triton's interpreter: it accessed memory "
                            "outside of its buffers") from None
        if not done:
            raise CudaError(f"{name} failed in Triton's interpreter: {reply}")
        return reply


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the interpreter's process, which exits when its input is closed."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    process.wait()


def _element(type_: Any) -> str:
    assert isinstance(type_, BufferType)
    return _ELEMENTS[t.signless(type_.element)]


def _name(kernel: KernelOp | ForeignLaunchOp) -> str:
    return kernel.kernel.data if isinstance(kernel, ForeignLaunchOp) else kernel.sym_name.data


def _size_names(kernel: KernelOp | ForeignLaunchOp) -> Sequence[Symbol]:
    return sizes_of(kernel) if isinstance(kernel, ForeignLaunchOp) else kernel.size_names


def _programs(kernel: KernelOp | ForeignLaunchOp, sizes: Mapping[Symbol, int]) -> tuple[int, ...]:
    """The numbers of programs: the user's kernels have axes, ours are numbered."""
    extents = [int(e.evaluate(sizes)) for e in kernel.grid.data]
    return tuple(extents) if isinstance(kernel, ForeignLaunchOp) else (prod(extents),)


def _written(kernel: KernelOp | ForeignLaunchOp) -> set[int]:
    """The positions of the buffers that the kernel writes."""
    if isinstance(kernel, ForeignLaunchOp):
        return set(planned_foreign(kernel).written)
    stored = {op.buffer for op in kernel.walk() if isinstance(op, StoreOp)}
    return {k for k, buffer in enumerate(kernel.buffers) if buffer in stored}


class InterpretedExecutable(InterpretedHost):
    """A model whose launches run in Triton's interpreter."""

    def __init__(self, module: ModuleOp, weights: WeightStore, exact: bool = False):
        super().__init__(module, weights, Interpreter(exact).run)
        self.notes = host_notes(module)
