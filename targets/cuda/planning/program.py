"""A module at block level as a program (`runtime/program.py`)."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from dialects.host import FuncOp, host_function
from dialects.strata.array_type import ArrayType
from dialects.strata.assumptions import choices_first
from dialects.strata.sizes import assumptions_of
from dialects.strata.types import buffer_type
from dialects.strata.weights import WeightStore
from targets.cuda.build.compile import CompileOptions
from targets.cuda.libraries.forms import library_notes
from targets.cuda.planning.functions import planned_functions
from targets.cuda.planning.plan import host_notes, is_straight, plan_host, planned_kernels
from targets.cuda.planning.sources import EmittedSources, overlapping
from targets.cuda.runtime import driver
from targets.cuda.runtime.control import ControlPlan
from targets.cuda.runtime.executable import CudaExecutable
from targets.cuda.runtime.program import CudaProgram, Signature
from targets.walking import kernels_of


def program_of(
    module: ModuleOp, options: CompileOptions, one_launch: bool = True
) -> CudaProgram:
    """The program of a module. `one_launch`: whether a straight host function becomes one graph.

    Raises ValueError for an operation that cannot stand in a host function.
    """
    main = host_function(module)
    signature = _signature(main, [*host_notes(module), *library_notes(kernels_of(module))])
    if one_launch and is_straight(main):
        plan = plan_host(module)
        return CudaProgram(signature, plan, EmittedSources(options, overlapping(plan, options)))
    functions = planned_functions(module, planned_kernels(module))
    return CudaProgram(signature, ControlPlan(tuple(functions), main.sym_name.data),
                       EmittedSources(options))


def load_module(
    module: ModuleOp, weights: WeightStore, options: CompileOptions, one_launch: bool = True
) -> CudaExecutable:
    """A module on the device. Raises CudaError without a suitable one. `one_launch`: as above."""
    driver.use_device()
    return CudaExecutable(program_of(module, options, one_launch), weights, options)


def _signature(main: FuncOp, notes: list[str]) -> Signature:
    inputs = tuple(ArrayType.of(buffer_type(a)) for a in main.input_arguments)
    return Signature(tuple(main.input_names), tuple(main.output_names), inputs,
                     tuple(choices_first(assumptions_of(main))), tuple(notes))
