"""The interface of a target, and how targets are found.

A target is either a folder `targets/<name>/` whose `__init__` defines `TARGET`, an instance of
`Target`, or an entry point in the group `strata.targets`. There is no list of targets to edit.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Schedule
from dialects.strata.schedule_options import AnyOption
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.windows import Window
from passes.contract import Caches, Packing
from targets.interface import Executable, TargetError, Timer, cpu_seconds

__all__ = ["Executable", "Target", "TargetError", "TargetOptions", "find_target", "target_names"]


Build = Callable[[ModuleOp, WeightStore, Mapping[Symbol, int]], Sequence[str]]
"""Compiles a module for given sizes of its inputs. Returns the reasons, if any, not to time it."""


@dataclass(frozen=True)
class TargetOptions:
    """What a user may choose about a target.

    `features` selects machine features instead of detecting them: "avx2" or "avx512" on the CPU, a
    compute capability such as "sm_90" on CUDA. `threads`: None means all that the process may use.
    `cache`: the folder of compiled code; None for no cache. `precision`: "f32" keeps IEEE single
    precision; "tf32", "fp16", "bf16" and "fp8" allow products of narrower floats.
    """

    features: str | None = None
    threads: int | None = None
    cache: Path | None = None
    precision: str = "f32"
    exact: bool = False
    """Round products before they are added, as the definitions of operators do."""
    denormals: str = "flush"
    """CPU: "keep" computes with subnormal floats, "flush" treats them as 0."""
    interpret: bool = False
    """CUDA: run kernels in Triton's interpreter instead of on a device."""
    check: bool | None = None
    """Whether invalid indices and accesses are errors. True: every access is checked. None: indices
    are checked where that costs next to nothing. False: nothing is checked."""
    library: bool = False
    """Whether kernels may be library calls where those were measured to be faster."""
    tell: Callable[[int, int], None] | None = field(default=None, compare=False, repr=False)
    """Progress of `load`: called with how many kernels have code, and how many there are."""


@dataclass(frozen=True)
class Target(ABC):
    """A back end. `levels` names its forms of target code, from readable to final."""

    name: str
    levels: tuple[str, ...]
    description: str = field(default="")
    lowers: bool = field(default=True)
    """Whether `load` accepts modules at block level only; if not, it accepts every level."""

    def check(self, options: TargetOptions) -> None:
        """Raises TargetError for options that the target does not support."""
        if options.features is not None:
            raise TargetError(f"target {self.name} has no feature sets to choose from: leave out "
                              f"'{options.features}'")

    def settled(self, options: TargetOptions) -> TargetOptions:
        """The options, with this target's defaults where the user left something open."""
        return options

    def begin(self, options: TargetOptions) -> None:
        """Start slow preparations while the passes still run; `load` will follow."""
        del options

    def claims(self, op_name: str) -> bool:
        """Whether the target provides its own nest for a composite graph op."""
        del op_name
        return False

    def narrow_factors(self, options: TargetOptions) -> Attribute | None:
        """The type to which factors of f32 products are rounded under the options; None: none."""
        del options
        return None

    def scaled_factors(self, options: TargetOptions) -> Attribute | None:
        """The 8-bit float to which factors of products with weights may be rounded, scaled by
        row and column, under the options; None: none."""
        del options
        return None

    def narrow_channels(self, options: TargetOptions) -> int:
        """From how many summed channels on a convolution is faster with rounded factors."""
        del options
        return 2

    def joined_groups(
        self, inputs: int, outputs: int, count: int, element: Attribute, options: TargetOptions
    ) -> int:
        """How many of a convolution's `count` groups to multiply as one, with zeros between them.
        The number divides `count`. `inputs`, `outputs`: the channels of one group."""
        del inputs, outputs, count, element, options
        return 1

    def byte_factors(self) -> tuple[Attribute, Attribute] | None:
        """The 8-bit types, i8 or ui8, that it multiplies fastest (left, right); None: any will do.
        """
        return None

    def shortens_constants(self) -> bool:
        """Whether f32 constants whose values are exact in a 16-bit float are stored as such."""
        return False

    def scans(self) -> bool:
        """Whether a sequential scan, which keeps a running result, is faster than a parallel scan
        in logarithmically many steps."""
        return False

    def programs(self, options: TargetOptions) -> int:
        """How many programs keep the machine busy; a full reduction is split among this many."""
        del options
        return 1

    def short_rows(self, options: TargetOptions) -> int:
        """Up to how many elements of a row a few programs reduce in less time than it takes to
        launch another kernel; 0: none."""
        del options
        return 0

    def multiplies(self, element: Attribute, options: TargetOptions) -> bool:
        """Whether products of this float type, summed in f32, are faster than products of f32."""
        del element, options
        return False

    def widens(self, options: TargetOptions) -> Collection[Attribute]:
        """The float types whose values are better kept as f32 if they are read often as factors."""
        del options
        return ()

    def product_parts(self, nest: NestOp, options: TargetOptions) -> tuple[Symbol, int] | None:
        """A summed axis of a contraction, and into how many equal parts to split it (split-K): the
        partial sums are computed in parallel, then added. Each part is longer than one element.
        None: do not split.

        Asked again about one of the parts, it returns None.
        """
        del nest, options
        return None

    def group_rows(self, rows: int | None, groups: int | None, options: TargetOptions) -> int:
        """How many rows of a group of a grouped product share one load of the group's matrix.
        1: each row loads its own. A size of None is known only at run time."""
        del rows, groups, options
        return 1

    def gathers(self, options: TargetOptions) -> bool:
        """Whether its products read gathered factors as fast as contiguous ones."""
        del options
        return False

    def checks_indices(self, options: TargetOptions) -> bool:
        """Whether a run ends with an error if the data contain an index out of range."""
        return options.check is not False

    def checks_accesses(self, options: TargetOptions) -> bool:
        """Whether every access of a kernel is checked against its buffer's bounds."""
        return options.check is True

    def panels(
        self, kernel: KernelOp, nest: NestOp, constants: Collection[int], options: TargetOptions
    ) -> Mapping[int, Packing] | None:
        """Which inputs of a contraction to pack into panels; None: keep operands as they are.

        If the kernel already has a schedule, that decides; otherwise the target's rules do.
        A `Border` is a copy with its dims in another order. An input whose packing is None also
        stays as it is; other padded inputs get a border.
        """
        del kernel, nest, constants, options
        return None

    def shorten(
        self, nest: NestOp, data: int, windows: Sequence[Window], options: TargetOptions
    ) -> Sequence[Window]:
        """Along which windows of a convolution Winograd's minimal filtering pays, in this order: at
        most two.

        `data`: the input that the windows move over; the other input is a constant filter.
        """
        del nest, data, windows, options
        return ()

    def row_memory(self, options: TargetOptions) -> int:
        """How many bytes of a row a program may keep between nests of a kernel; 0: none."""
        del options
        return 0

    def joins_online(self, kernel: KernelOp, options: TargetOptions) -> bool:
        """Whether the fused kernel, with one pass over its data and sums that follow a running
        maximum (online softmax), is faster than the kernels from which it was fused."""
        del kernel, options
        return False

    def online_parts(self, kernel: KernelOp, options: TargetOptions) -> int:
        """Into how many equal parts to split the reduction of such a kernel; 1: do not split."""
        del kernel, options
        return 1

    def prefetches(self, options: TargetOptions) -> Caches | None:
        """The caches that programs prefetch operands into; None: the target does not prefetch."""
        del options
        return None

    def apart_memory(self, kernel: KernelOp, options: TargetOptions) -> int:
        """Up to how many bytes of intermediate values a fused kernel is faster split; 0: never."""
        del kernel, options
        return 0

    def prepare(self, kernel: KernelOp, options: TargetOptions) -> None:
        """Rewrite a kernel's axes for this target (split, fuse) before scheduling."""
        del kernel, options

    def decodes(self, element: Attribute, options: TargetOptions) -> bool:
        """Whether the target has a native conversion from a narrow float type to f32."""
        del element, options
        return False

    def encodes(self, element: Attribute, options: TargetOptions) -> bool:
        """Whether it has a native conversion from f32 that also treats values out of range as the
        narrow type's definition says."""
        del element, options
        return False

    def schedule_options(self) -> Sequence[AnyOption]:
        """The options that its schedules may have besides the shared ones."""
        return ()

    @abstractmethod
    def schedule(self, kernel: KernelOp, options: TargetOptions) -> Schedule:
        """Choose a schedule for a kernel: ordered rules plus a fallback."""

    def candidates(
        self, kernel: KernelOp, around: Schedule, options: TargetOptions
    ) -> Sequence[Schedule]:
        """Schedules to try besides `around`, most promising first.

        `kernel` has the form that the rules see before packing: `panels` follows from its schedule.
        """
        del kernel, around, options
        return ()

    def tuning_key(self, options: TargetOptions) -> str | None:
        """What the fastest schedules depend on: the machine, and the version of the candidates.
        None: the target has no candidates.
        """
        del options
        return None

    def library_keys(self, options: TargetOptions) -> Sequence[str]:
        """What else the speed of kernels depends on if `options.library` allows library calls: the
        installed libraries with their versions."""
        del options
        return ()

    def library_of(self, kernel: KernelOp, options: TargetOptions) -> str | None:
        """The key of the library that some of the kernel's candidates call; None without any."""
        del kernel, options
        return None

    def builder(self, options: TargetOptions) -> Build:
        """A compiler for processes that run no kernels; a later `load` finds its code cached."""
        def build(
            module: ModuleOp, weights: WeightStore, sizes: Mapping[Symbol, int]
        ) -> Sequence[str]:
            del sizes
            self.load(module, weights, options)
            return ()

        return build

    def measures_apart(self) -> bool:
        """Whether timings are unaffected by other work of the processors at the same time."""
        return False

    def timer(
        self, executable: Executable, inputs: Sequence[Array], footprint: int,
        options: TargetOptions,
    ) -> Timer:
        """The timer of one kernel of a model whose constants take `footprint` bytes."""
        del footprint, options
        return lambda calls: cpu_seconds(executable, inputs, calls)

    @abstractmethod
    def emit(self, module: ModuleOp, level: str, options: TargetOptions) -> str:
        """The target code of a module at block level, as text of one of `levels`."""

    @abstractmethod
    def load(
        self, module: ModuleOp, weights: WeightStore, options: TargetOptions
    ) -> Executable:
        """Make a module at block level (a host function and block kernels) runnable."""

    def report(self) -> list[str]:
        """Lines for `doctor`: what this machine offers the target, or what is missing."""
        return []


def target_names() -> list[str]:
    """All targets: our own folders and those of installed packages."""
    import targets

    own = [m.name for m in pkgutil.iter_modules(targets.__path__) if m.ispkg]
    return sorted({*own, *(e.name for e in entry_points(group="strata.targets"))})


def find_target(name: str) -> Target:
    """The target of a name. Raises KeyError, which lists the available targets."""
    for entry in entry_points(group="strata.targets"):
        if entry.name == name:
            return entry.load()
    if name not in target_names():
        raise KeyError(f"no target {name!r}; there are: {', '.join(target_names())}")
    return importlib.import_module(f"targets.{name}").TARGET
