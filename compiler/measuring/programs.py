"""One model compiled in several ways on one target: what each way costs, and what is to be timed.

Where the target's code cannot run on this machine, programs are compiled and counted all the same.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from compiler.diagnostics import StrataError
from compiler.faults import CompilerFault
from compiler.io.arrays import kind_of
from compiler.io.signature import Signature, signature_of
from compiler.measuring.ahead import Ahead
from compiler.measuring.branches import Failure, Lowering, Trunk
from compiler.measuring.work import Watch, Work
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.state import State
from dialects.strata.binding import bind_sizes
from targets.base import TargetError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from compiler.cli.execution import WantedInputs
    from compiler.frontend import MemoryModel
    from compiler.instrument import Instrument
    from dialects.strata.types import Array
    from dialects.symbolic.symbol import Symbol
    from targets.base import Executable

Run = Callable[[], Sequence[Any]]
Made = TypeVar("Made")
_PROBE = """builtin.module {
  strata.func @main(%x: f32[4]) -> (f32[4]) inputs ["x"] outputs ["y"] {
    %y = graph.exp %x : f32[4]
    strata.return %y
  }
}
"""


@dataclass(frozen=True)
class Program:
    """A compiled program. `run`: a call of it on the inputs; None where it cannot run. `code`: the
    same for equal programs."""

    work: Work
    compile_s: float
    code: str
    run: Run | None


@dataclass(frozen=True)
class Prepared:
    """A program before it is loaded."""

    compilation: Compiler
    state: State
    watch: Watch
    sizes: Mapping[Symbol, int]
    seconds: float = 0.0
    """What the passes have taken; 0 if some of them ran for several programs."""
    ready: Collection[Future[None]] = ()
    """Are there once code that is compiled ahead is in the cache; none if none is."""

    @property
    def code(self) -> str:
        return f"{self.watch.code} {self.compilation.parts.options.one_launch}"


@dataclass
class Builder:
    """Compiles one model with different options, each program once.

    `known`: programs by their code. `cannot_run`: why programs do not run here; empty if they do.
    """

    model: str | MemoryModel
    wanted: WantedInputs
    instruments: Sequence[Instrument]
    command: str
    known: dict[str, Program] = field(default_factory=dict[str, Program])
    cannot_run: str = ""
    signature: Signature | None = None
    inputs: Sequence[Array] = ()
    first: Executable | None = None
    ahead: Ahead | None = None

    def prepare(self, options: CompileOptions) -> None:
        """Load what every compilation needs, which would count for the first, and find out whether
        programs run here. Raises StrataError for a target that compiles nothing."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "probe.mlir"
            file.write_text(_PROBE, encoding="utf-8")
            plain = CompileOptions(target=options.target, features=options.features, cache="off",
                                   plugins=options.plugins, interpret=options.interpret)
            compilation = Compiler(str(file), plain)
            if not compilation.target.lowers:
                raise StrataError(f"target {options.target} runs a model as it is read, so there "
                                  "are no strategies to compare")
            try:
                compilation.begin()
                compilation.load(compilation.prepare())
            except StrataError as error:
                if not isinstance(error.__cause__, TargetError):
                    raise
                self.cannot_run = str(error.__cause__)

    def build(self, options: CompileOptions) -> Program:
        """The program of these options. Raises StrataError or CompilerFault."""
        return self.finished(self.prepared(options, at_once=True))

    def prepared(self, options: CompileOptions, *, at_once: bool = False) -> Prepared:
        """What the passes make with these options. `at_once`: whether it is loaded right after;
        otherwise its code is compiled in the meantime.

        Raises StrataError or CompilerFault.
        """
        lowering = self._lowering(options)
        started = time.perf_counter()
        if at_once and not self.cannot_run:
            lowering.compilation.begin()
        state = lowering.compilation.prepare()
        made = self._prepared(lowering, state)
        seconds = time.perf_counter() - started - lowering.watch.seconds
        return replace(made if at_once else self._begun(made), seconds=seconds)

    def varied(
        self, options: CompileOptions, variants: Mapping[str, CompileOptions]
    ) -> Iterator[tuple[str, Prepared | Failure | None]]:
        """What the passes make with the options of each variant, in any order, or why they fail;
        None: the program of `options`, whose passes do not fail.

        Variants are lowered together as long as their modules are one (`branches.py`).
        """
        apart = [v for v in variants if variants[v].shares_layers != options.shares_layers]
        trunk = self._trunk(options, {v: o for v, o in variants.items() if v not in apart})
        for branch, state in trunk.lowered():
            yield branch.name, self._begun(self._prepared(branch, state)) if (
                isinstance(state, State)) else state
        for name in apart:  # they are imported in another way
            yield name, attempted(lambda own=variants[name]: self.prepared(own))

    def _trunk(
        self, options: CompileOptions, variants: Mapping[str, CompileOptions]
    ) -> Trunk:
        own = self._lowering(options)
        state = own.compilation.read()
        building = own.compilation.parts.building
        building.begin()
        building.expect(state.module)
        return Trunk(own, state, [self._lowering(o, name) for name, o in variants.items()])

    def _lowering(self, options: CompileOptions, name: str = "") -> Lowering:
        watch = Watch()
        compilation = Compiler(self.model, options, [*self.instruments, self.wanted, watch],
                               self.command)
        return Lowering(name, compilation, watch)

    def _prepared(self, lowering: Lowering, state: State) -> Prepared:
        return Prepared(lowering.compilation, state, lowering.watch, self._sizes(state))

    def _begun(self, prepared: Prepared) -> Prepared:
        """The same, while its code is compiled, if it is new. Raises StrataError or CompilerFault.
        """
        if prepared.code in self.known:
            return prepared
        building = prepared.compilation.parts.building
        with prepared.compilation.guard("load", state=prepared.state):
            jobs = building.jobs(prepared.state.module, prepared.sizes)
        if not jobs:
            return prepared
        self.ahead = self.ahead or Ahead(building)
        return replace(prepared, ready=self.ahead.begin(jobs))

    def finished(self, prepared: Prepared) -> Program:
        """The program; the same as an earlier one if their code is equal.

        Raises StrataError or CompilerFault.
        """
        code = prepared.code
        if code not in self.known:
            started = time.perf_counter()
            for code_is_kept in prepared.ready:
                code_is_kept.result()
            run = self._run(prepared.compilation, prepared.state, prepared.sizes)
            seconds = prepared.seconds + time.perf_counter() - started
            self.known[code] = Program(prepared.watch.work(prepared.sizes), seconds, code, run)
        return self.known[code]

    def _sizes(self, state: State) -> Mapping[Symbol, int]:
        """The sizes of the inputs, which are those of the first program."""
        if self.signature is None:
            self.signature = signature_of(state.module)
            self.inputs = self.wanted.arrays(self.signature)
        return bind_sizes(self.signature.input_types, self.inputs, self.signature.input_names)

    def _run(
        self, compilation: Compiler, state: State, sizes: Mapping[Symbol, int]
    ) -> Run | None:
        if self.cannot_run:
            with compilation.guard("load", state=state):
                compilation.parts.building.build(state.module, state.context.weights, sizes)
            return None
        loaded = compilation.load(state)
        if self.first is None:
            self.first = loaded
        else:
            loaded.share(self.first)
        return call_of(loaded, self.inputs)


def call_of(loaded: Executable, inputs: Sequence[Array]) -> Run:
    """A call, with inputs where the program wants them, that ends when the results are there."""
    given, wait = on_device(inputs) if loaded.takes_gpu_tensors else (inputs, None)
    if wait is None:
        return lambda: loaded.run(inputs)

    def run() -> Sequence[Any]:
        found = loaded.run(given)
        wait()
        return found

    return run


def on_device(inputs: Sequence[Array]) -> tuple[Sequence[Any], Callable[[], None] | None]:
    """The inputs as tensors on the GPU, and a function that waits for it; without PyTorch, the
    arrays, which each call then sends and fetches."""
    from compiler.frontend.torch.library import torch_module

    try:
        torch = torch_module()
    except ImportError:
        return inputs, None
    make = kind_of(torch.empty(0))
    if make is None or not torch.cuda.is_available():
        return inputs, None
    return [make(array).cuda() for array in inputs], torch.cuda.synchronize


def attempted(build: Callable[[], Made]) -> Made | StrataError | CompilerFault:
    """What a function makes, or why it makes nothing."""
    try:
        return build()
    except (StrataError, CompilerFault) as error:
        return error


def with_groups(
    options: CompileOptions, strategy: str, added: Sequence[str] = (), left_out: Sequence[str] = ()
) -> CompileOptions:
    """Options for another strategy."""
    return replace(options, strategy=strategy, with_groups=tuple(added),
                   without_groups=tuple(left_out))
