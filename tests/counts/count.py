"""What one compilation is counted by. No number depends on the machine that counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from compiler.frontend import MemoryModel
from compiler.instrument import Instrument
from compiler.options import CompileOptions as ModelOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.state import State
from compiler.pipeline.steps import Step
from dialects.block import KernelOp
from dialects.host import host_functions
from dialects.host.ops import CopyOp, LaunchOp
from dialects.strata.types import BufferType, byte_width
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from targets.cpu.machine import Machine, machine_of
from targets.cuda.build.compile import CompileOptions, Job, compile_kernels, resources
from targets.cuda.emit import EmitOptions, emit_kernel
from tests.counts.assembly import commented_assembly, innermost_loops
from tests.counts.machine import has_assembler, server

Counts = dict[str, int]
CODE = "code: "
"""Begins the names of counts that depend on the version of LLVM or Triton."""
_PTX = re.compile(r"^\t(?!\.|//)[^\n]*;", re.MULTILINE)
UNKNOWN = 16
"""What counts as the value of a size that the model does not name."""


@dataclass(frozen=True)
class Subject:
    """A model, and the values of its open sizes at which bytes are counted."""

    name: str
    model: onnx.ModelProto
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Setting:
    """What is compiled for, and with which passes."""

    target: str
    features: str
    passes: str = "default"

    @property
    def name(self) -> str:
        return f"{self.target} {self.features}"

    def options(self) -> ModelOptions:
        return ModelOptions(target=self.target, features=self.features, passes=self.passes,
                              cache="off", tuned="off", threads=1)


AVX512, AVX2, SM_90 = Setting("cpu", "avx512"), Setting("cpu", "avx2"), Setting("cuda", "sm_90")


def count(subject: Subject, setting: Setting) -> Counts:
    """All counts of a subject that need no Triton."""
    with server():
        compiler, state, watch = lowered(subject, setting)
        counts = {**_of_launches(state.module, subject.sizes), **watch.counts()}
        if setting.target == "cpu" and has_assembler():
            counts |= _of_loops(compiler.emit(state, "llvm"), machine_of(setting.features))
    return counts


def lowered(subject: Subject, setting: Setting) -> tuple[Compiler, State, Watch]:
    watch = Watch()
    model = MemoryModel(f"{subject.name}.onnx", subject.model.SerializeToString())
    compiler = Compiler(model, setting.options(), (watch,))
    return compiler, compiler.lower(), watch


# ---------------------------------------------------------------------- the host's functions
def _of_launches(module: ModuleOp, sizes: Mapping[str, int]) -> Counts:
    """Launches that happen at these sizes stand once each, also in the body of a loop."""
    values = {Symbol.size(name): value for name, value in sizes.items()}
    functions = host_functions(module)
    steps = [op for f in functions for op in f.walk() if isinstance(op, LaunchOp | CopyOp)
             and (isinstance(op, CopyOp) or op.when is None or _value(op.when.data, values))]
    arenas = (f.arena_bytes or Expr.of(0) for f in functions)
    return {
        "kernels": sum(isinstance(op, KernelOp) for op in module.body.block.ops),
        "launches": sum(isinstance(op, LaunchOp) for op in steps),
        "copies": sum(isinstance(op, CopyOp) for op in steps),
        "bytes moved": sum(_moved(op, values) for op in steps),
        "arena bytes": sum(_value(size, values) for size in arenas),
    }


def _moved(op: Operation, sizes: Mapping[Symbol, int]) -> int:
    """The bytes of the buffers that a launch or copy is given, each once."""
    return sum(_bytes(value, sizes) for value in dict.fromkeys(op.operands))


def _bytes(value: SSAValue, sizes: Mapping[Symbol, int]) -> int:
    type_ = value.type
    if not isinstance(type_, BufferType):
        return 0
    return _value(product(type_.shape), sizes) * byte_width(type_.element)


def _value(size: Expr, sizes: Mapping[Symbol, int]) -> int:
    unknown = {symbol: UNKNOWN for symbol in size.symbols}
    return int(size.evaluate({**unknown, **sizes}))


# ---------------------------------------------------------------------- passes and levels
class Watch(Instrument):
    """Counts operations at the end of each level, and those that each pass changes."""

    def __init__(self) -> None:
        self.operations: Counts = {}
        self.changed: Counter[str] = Counter()
        self.forms: dict[Operation, tuple[Any, ...]] = {}

    def start(self, state: State) -> None:
        self.forms = _forms(state.module)
        self.operations[state.level] = len(self.forms)

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        forms = _forms(state.module)
        self.operations[step.level] = len(forms)
        self.changed[step.name] += sum(self.forms.get(op) != form for op, form in forms.items())
        self.changed[step.name] += sum(op not in forms for op in self.forms)
        self.forms = forms  # keeps the operations, so that none takes the place of another

    def counts(self) -> Counts:
        levels = {f"operations: {level}": n for level, n in self.operations.items()}
        return levels | {f"rewrites: {name}": n for name, n in self.changed.items()}


def _forms(module: ModuleOp) -> dict[Operation, tuple[Any, ...]]:
    """What there is to change in each operation."""
    return {op: tuple(_form(op)) for op in module.walk() if op is not module}


def _form(op: Operation) -> Iterator[Any]:
    yield tuple(op.operands)
    yield tuple(r.type for r in op.results)
    yield dict(op.properties)
    yield dict(op.attributes)


# ---------------------------------------------------------------------- code
def _of_loops(text: str, machine: Machine) -> Counts:
    loops = innermost_loops(commented_assembly(text, machine))
    return {f"{CODE}innermost loops": loops.count,
            f"{CODE}instructions in them": loops.instructions,
            f"{CODE}spills among these": loops.spills}


def count_cubins(subject: Subject, setting: Setting) -> Counts:
    """What Triton makes of a subject's kernels, all together. Needs no GPU."""
    _, state, _ = lowered(subject, setting)
    kernels = [op for op in state.module.body.block.ops if isinstance(op, KernelOp)]
    jobs = [Job(emit_kernel(k, EmitOptions(ptx=True)), tuple(range(len(k.buffers))))
            for k in kernels]
    binaries = compile_kernels(jobs, CompileOptions(arch=setting.features))
    needs = [found for b in binaries if (found := resources(b)) is not None]
    return {
        f"{CODE}registers": sum(n.registers for n in needs),
        f"{CODE}bytes spilled": sum(n.local for n in needs),
        f"{CODE}bytes of shared memory": sum(b.shared for b in binaries),
        f"{CODE}PTX instructions": sum(len(_PTX.findall(b.ptx)) for b in binaries),
    }
