"""A module at block level as what a library needs (`artifact/pieces.py`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from dialects.host import ForeignLaunchOp
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.cuda.artifact.launches import Code
from targets.cuda.artifact.pieces import CudaParts
from targets.cuda.build.compile import CompileOptions, compile_kernels, triton_version
from targets.cuda.planning.program import program_of
from targets.cuda.runtime.constants import PlannedConstant
from targets.cuda.runtime.planned import Collect, HostPlan, PlannedKernel
from targets.cuda.runtime.variants.variant import Compiled, Variant, job_of_source
from targets.interface import TargetError


def shipped(
    module: ModuleOp, weights: WeightStore, options: CompileOptions, target: str
) -> CudaParts:
    """Compile all variants that calls may need, but for buffers of about 2^31 elements and more.

    Code is without lines of source and assembly, which would be two thirds of it.

    Raises TargetError for models whose host decides at run time, and for library calls.
    """
    program = program_of(module, options)
    host = program.host
    if not isinstance(host, HostPlan):
        raise TargetError(f"the target {target} writes libraries of models whose launches depend "
                          "on sizes alone; this one decides while it runs: "
                          f"{', '.join(program.signature.notes) or 'on data'}")
    if any(isinstance(step, Collect) for step in host.steps):
        raise TargetError("the model runs on several ranks, and a library has no communication: "
                          "compile it in the process of each rank")
    if any(isinstance(kernel.operation, ForeignLaunchOp) for kernel in host.kernels):
        raise TargetError("the model launches kernels that its user wrote, which a library does "
                          "not hold")
    if called := [kernel.name for kernel in host.kernels if kernel.library]:
        raise TargetError(f"kernels {', '.join(called)} are library calls, which a library of ours "
                          "cannot make; compile with --library never")
    variants = [v for kernel in host.kernels for v in _variants(kernel)]
    sources = [program.sources.source(kernel, wide) for kernel, _, wide in variants]
    binaries = compile_kernels(list(map(job_of_source, variants, sources)),
                               replace(options, lines=False))
    code = Code.of({v: Compiled(binary, source.without_code) for v, binary, source in zip(
        variants, binaries, sources, strict=True)})
    arrays = [_array(constant, weights) for constant in host.constants]
    facts = {"features": options.arch, "processor": options.arch, "triton": triton_version()}
    return CudaParts(program.signature, host, code, arrays, options.arch, facts)


def _variants(kernel: PlannedKernel) -> list[Variant]:
    """Code for any sizes; and for sizes of which 16 divides all that occur in strides."""
    general = (kernel, frozenset(()), False)
    return [(kernel, frozenset(kernel.strides), False), general] if kernel.strides else [general]


def _array(constant: PlannedConstant, weights: WeightStore) -> Array:
    """The elements of a constant. Raises KeyError if the store lacks the weight."""
    return np.ascontiguousarray(constant.array(weights), constant.type.dtype)
