"""The tasks of the tuner: the kernels of a model, each as a small model of its own.

The input is a module after the last pass before `loop-apply-tuned`; the result is a task per
distinct kernel. Its module calls the kernel once, as in the model: with the same constants, which
are packed at compilation, and with everything else as inputs. Sizes that the model leaves open
stay open; the task holds the values at which to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from compiler.pipeline.text import format_header, format_module
from dialects.graph import ConstantOp
from dialects.loop import CallOp, KernelOp
from dialects.strata.func import MAIN, FuncOp
from dialects.strata.schedule import Schedule, ScheduleAttr
from dialects.strata.types import TensorType, i8, tensor
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.canonical import Canonical
from passes.analyses.loop.choices import key_of, text_key
from passes.analyses.loop.constants import constant_source
from passes.loop.scheduling.apply_tuned import LoopApplyTuned
from passes.rewrites.loop.nests import gathered_inputs
from passes.rewriting import functions


@dataclass
class Task:
    """A kernel to tune. `launches`: the number of calls in the model's text.

    `indices`: the inputs whose values are used as indices. `footprint`: the bytes of all constants
    of the model.
    """

    name: str
    key: str
    canonical: Canonical
    module: ModuleOp
    weights: WeightStore
    sizes: Mapping[Symbol, int]
    indices: frozenset[str]
    footprint: int = 0
    launches: int = 1
    elements: int = field(default=0)
    """The total number of elements of its tensors."""
    alike: list[Canonical] = field(default_factory=list[Canonical])
    """Further kernels of the model that differ only in names."""

    @property
    def kernel(self) -> KernelOp:
        return next(op for op in self.module.body.block.ops if isinstance(op, KernelOp))

    def text(self, schedule: Schedule | None) -> str:
        """The text of the module with this schedule on the kernel, or without one, before packing.
        """
        kernel = self.kernel
        kernel.properties.pop("schedule", None)
        if schedule is not None:
            kernel.properties["schedule"] = ScheduleAttr(schedule)
        text = format_module(self.module, locations=False)
        kernel.properties.pop("schedule", None)
        return format_header("loop", (LoopApplyTuned.name,)) + text


def tasks_of(
    module: ModuleOp, weights: WeightStore, sizes: Mapping[Symbol, int],
    rules: Callable[[KernelOp], Schedule], footprint: int = 0,
) -> tuple[list[Task], list[str]]:
    """The tasks, and the names of kernels whose sizes are only known at run time."""
    tasks: dict[str, Task] = {}
    unknown: list[str] = []
    kernels = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, KernelOp)}
    for func in functions(module):
        known = sizes if func.sym_name.data == MAIN else dict[Symbol, int]()
        for call in [op for op in func.body.block.ops if isinstance(op, CallOp)]:
            kernel = kernels[call.kernel.data]
            text, canonical = text_key(call, kernel, weights)
            values = _sizes_of(call, kernel, known)
            if text in tasks:
                tasks[text].launches += 1
                tasks[text].alike.append(canonical)
            elif values is None:
                unknown.append(kernel.sym_name.data)
            else:
                key = key_of(text, canonical, rules(kernel))
                tasks[text] = _task(call, kernel, key, weights, values)
                tasks[text].footprint = footprint
    return list(tasks.values()), unknown


def _sizes_of(
    call: CallOp, kernel: KernelOp, known: Mapping[Symbol, int]
) -> dict[Symbol, int] | None:
    """The values of a kernel's sizes; None if some are only known at run time."""
    exprs = call.sizes.data
    if not all(e.symbols <= known.keys() for e in exprs):
        return None
    values = [int(e.evaluate(known)) for e in exprs]
    return dict(zip(kernel.size_names, values, strict=True))


def _task(
    call: CallOp, original: KernelOp, key: str, weights: WeightStore, sizes: Mapping[Symbol, int]
) -> Task:
    kernel, own = original.clone(), WeightStore(held=weights.held)
    constants = [constant_source(v) for v in call.inputs]
    arguments = list(kernel.body.block.args)
    given = [k for k, c in enumerate(constants) if c is None]
    names = [f"x{k}" for k in given]
    symbols = kernel.size_names
    func = FuncOp.of(MAIN, [*names, *(f"size_{s.name}" for s in symbols)], [
        *(arguments[k].type for k in given),
        *(tensor(i8, [Expr.symbol(s)]) for s in symbols)])  # says what the size is
    values: dict[int, SSAValue] = dict(zip(given, func.body.block.args, strict=False))
    for k, constant in enumerate(constants):
        if constant is not None:
            values[k] = _constant(constant, arguments[k], weights, own, func)
    results = [v.type for v in kernel.yielded if isinstance(v.type, TensorType)]
    run = CallOp.of(kernel.sym_name.data, [values[k] for k in range(len(arguments))],
                    [Expr.symbol(s) for s in symbols], results)
    func.body.block.add_op(run)
    func.finish([f"y{k}" for k in range(len(results))], run.results)
    return Task(kernel.sym_name.data, key, Canonical.of(kernel), ModuleOp([func, kernel]), own,
                sizes, _indices(kernel, names, given), elements=_elements(run, sizes))


def _constant(
    constant: ConstantOp, argument: SSAValue, weights: WeightStore, own: WeightStore, func: FuncOp
) -> SSAValue:
    """The same constant in the task, in the shape that the kernel reads."""
    assert isinstance(argument.type, TensorType)
    shape = [int(size.evaluate({})) for size in argument.type.shape]
    array = constant.contents(weights).reshape(shape)
    new = ConstantOp.of_array(array, own, constant.label or "constant")
    func.body.block.add_op(new)
    return new.result


def _indices(kernel: KernelOp, names: Sequence[str], given: Sequence[int]) -> frozenset[str]:
    found: set[SSAValue] = set()
    for nest in kernel.nests:
        for map_ in (*nest.input_maps, *nest.output_maps):
            found |= {nest.inputs[k] for k in gathered_inputs(map_)}
    arguments = kernel.body.block.args
    return frozenset(n for n, k in zip(names, given, strict=True) if arguments[k] in found)


def _elements(call: CallOp, sizes: Mapping[Symbol, int]) -> int:
    types = [v.type for v in (*call.inputs, *call.results)]
    return sum(prod(int(s.evaluate(sizes)) for s in t.shape)
               for t in types if isinstance(t, TensorType))


def write_task(task: Task, folder: Path) -> Path:
    """Write the folder of a task with its weights, and return its path."""
    folder.mkdir()
    task.weights.save(folder / "weights.npz")
    return folder
