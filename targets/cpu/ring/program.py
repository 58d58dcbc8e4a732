"""A module at block level as a program that computes in the ring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from dialects.block import DotOp, KernelOp
from dialects.block.programs import tile_type
from dialects.host import contents_of, host_function, host_functions
from dialects.semantics.ring import Ring
from dialects.strata.types import Array, is_float
from dialects.strata.weights import WeightStore
from targets.cpu.build.cache import ObjectCache
from targets.cpu.build.jit import compile_fixed, compile_quickly, link
from targets.cpu.driver.frame import ENTRY
from targets.cpu.driver.module import KernelInfo, emit_driver
from targets.cpu.emit.kernel import KernelText, emit_kernel_text
from targets.cpu.machine import Machine
from targets.cpu.ring.builder import RingBuilder
from targets.cpu.ring.calls import Calls
from targets.cpu.ring.plain import plain_values
from targets.cpu.runtime.executable import CpuExecutable
from targets.cpu.runtime.plan import RunPlan
from targets.interface import Executable, TargetError
from targets.walking import kernels_of


class RingExecutable(Executable):
    """A program whose inputs and outputs are residues. Runs on one thread."""

    def __init__(self, inner: CpuExecutable, ring: Ring, calls: Calls) -> None:
        self.inner, self.ring, self.calls = inner, ring, calls
        self.input_names, self.output_names = inner.input_names, inner.output_names

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Raises as the operation that failed, if one did."""
        self.calls.failures.clear()
        outputs = self.inner.run([_plain(x) for x in inputs])
        if self.calls.failures:
            raise self.calls.failures[0]
        return [self.ring.view(x) for x in outputs]


def load_in_ring(
    module: ModuleOp, weights: WeightStore, machine: Machine, ring: Ring
) -> RingExecutable:
    """The program of a module. Raises TargetError for matrix registers, which only multiply floats.

    Products of narrow factors are written out, since the processor's own instructions for them
    round.
    """
    calls, cache, infos = Calls(ring), ObjectCache(None), dict[str, KernelInfo]()
    objects: list[bytes] = []
    for number, kernel in enumerate(kernels_of(module)):
        text = _text(kernel, f"ring{number}", machine, calls)
        infos[kernel.sym_name.data] = KernelInfo.of(text.name, kernel, machine)
        objects.append(compile_quickly(text.module.text, machine, cache))
    driver = emit_driver(host_function(module), host_functions(module), infos, machine)
    objects += [compile_quickly(driver.own.text, machine, cache),
                compile_fixed(driver.fixed.text, machine, cache)]
    constants = [_residues(contents_of(op.value, op.type, weights), ring)
                 for op in driver.constants]
    plan = RunPlan.of(host_function(module), driver.checks, driver.steps)
    return RingExecutable(CpuExecutable(plan, link(objects, ENTRY), constants, 1), ring, calls)


def _text(kernel: KernelOp, name: str, machine: Machine, calls: Calls) -> KernelText:
    """The code of a kernel. Raises TargetError for one that has none."""
    plain = plain_values(kernel)
    if any(isinstance(op, DotOp) and _is_matrix(op) for op in kernel.walk()):
        raise TargetError(f"kernel @{kernel.sym_name.data} has no code in the ring: matrix "
                          "registers multiply floats; --features avx512 uses vectors")
    try:
        return emit_kernel_text(kernel, machine, name, builder=lambda writer: RingBuilder(
            writer, machine, calls.ring, calls, plain))
    except ValueError as error:
        raise TargetError(f"kernel @{kernel.sym_name.data} has no code in the ring: {error}"
                          ) from error


def _is_matrix(op: DotOp) -> bool:
    type_ = tile_type(op.result)
    return type_.matrix and is_float(type_.element)


def _residues(array: Array, ring: Ring) -> Array:
    return _plain(ring.wrap(np.asarray(array)))


def _plain(array: Array) -> Array:
    """An array with NumPy's own arithmetic, as code reads it."""
    plain = np.asarray(array).view(np.ndarray)
    return np.ascontiguousarray(plain).reshape(plain.shape)
