"""What a target is, and how targets are found.

A target is a folder `targets/<name>/` whose `__init__` has `TARGET`, an instance of `Target`; or an
entry point in the group `strata.targets`. There is no list of targets to edit.
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
"""Compiles a module for sizes of its inputs; returns why it is not worth a try, if it is not."""


@dataclass(frozen=True)
class TargetOptions:
    """What a user may choose about a target.

    `features` selects machine features instead of asking the machine: on the CPU "avx2" or
    "avx512", on CUDA a compute capability such as "sm_90". `threads`: None means all that the
    process may use. `cache`: folder of compiled code, None for no cache. `precision`: "f32" keeps
    IEEE single precision; "tf32", "fp16", "bf16", "fp8" allow narrower products.
    """

    features: str | None = None
    threads: int | None = None
    cache: Path | None = None
    precision: str = "f32"
    exact: bool = False
    """Round products before they are added, as the definitions of operators do."""
    denormals: str = "flush"
    """CPU: "keep" computes with floats below the least normal one, "flush" takes them for 0."""
    interpret: bool = False
    """CUDA: run kernels in Triton's interpreter instead of on a device."""
    check: bool | None = None
    """Whether wrong indices and accesses are errors. True: every access is checked; None: indices
    are, where that costs next to nothing; False: nothing is."""
    library: bool = False
    """Whether kernels may be calls of a library, where these were measured to be faster."""
    tell: Callable[[int, int], None] | None = field(default=None, compare=False, repr=False)
    """What `load` tells of its kernels: how many have code, and how many there are."""


@dataclass(frozen=True)
class Target(ABC):
    """A back end. `levels` names its kinds of target code, from readable to final."""

    name: str
    levels: tuple[str, ...]
    description: str = field(default="")
    lowers: bool = field(default=True)
    """Whether `load` takes modules at block level only; if not, it takes those of every level."""

    def check(self, options: TargetOptions) -> None:
        """Raises TargetError for options that the target cannot serve."""
        if options.features is not None:
            raise TargetError(f"target {self.name} has no feature sets to choose from, "
                              f"'{options.features}' neither")

    def settled(self, options: TargetOptions) -> TargetOptions:
        """The options with what this target takes where the user leaves something open."""
        return options

    def begin(self, options: TargetOptions) -> None:
        """Start what takes long to start, beside the passes: `load` will follow."""
        del options

    def claims(self, op_name: str) -> bool:
        """Whether the target provides its own nest for a composite graph op."""
        del op_name
        return False

    def narrow_factors(self, options: TargetOptions) -> Attribute | None:
        """What to round the factors of f32 products to, as far as options allow; None: nothing."""
        del options
        return None

    def scaled_factors(self, options: TargetOptions) -> Attribute | None:
        """The float of a byte to which factors of products with weights may be rounded, scaled by
        row and column, as far as options allow; None: none."""
        del options
        return None

    def narrow_channels(self, options: TargetOptions) -> int:
        """How many channels a convolution sums up at least for rounded factors to be faster."""
        del options
        return 2

    def joined_groups(
        self, inputs: int, outputs: int, count: int, element: Attribute, options: TargetOptions
    ) -> int:
        """How many of a convolution's `count` groups to multiply as one, zeros between them; it
        divides them. `inputs`, `outputs`: the channels of a group."""
        del inputs, outputs, count, element, options
        return 1

    def byte_factors(self) -> tuple[Attribute, Attribute] | None:
        """The bytes, i8 or ui8, that it multiplies best, left and right; None: it does not matter.
        """
        return None

    def shortens_constants(self) -> bool:
        """Whether constants are better read as halves, where these are their exact values."""
        return False

    def scans(self) -> bool:
        """Whether one walk that keeps what it has combined is faster than several that combine
        elements farther and farther apart."""
        return False

    def programs(self, options: TargetOptions) -> int:
        """How many programs keep the machine busy; reductions of everything become as many."""
        del options
        return 1

    def short_rows(self, options: TargetOptions) -> int:
        """How many elements a few programs walk while another kernel would begin; 0: none."""
        del options
        return 0

    def multiplies(self, element: Attribute, options: TargetOptions) -> bool:
        """Whether products are faster on factors of this float, summed in f32, than on f32."""
        del element, options
        return False

    def widens(self, options: TargetOptions) -> Collection[Attribute]:
        """The floats of which factors that are read often are better kept as f32."""
        del options
        return ()

    def product_parts(self, nest: NestOp, options: TargetOptions) -> tuple[Symbol, int] | None:
        """A summed axis of a contraction, and into how many equal parts, each more than one
        element long, to cut it: its sums are computed side by side, then added. None: leave it.

        Asked again about the parts, it gives None.
        """
        del nest, options
        return None

    def group_rows(self, rows: int | None, groups: int | None, options: TargetOptions) -> int:
        """How many rows of a group of a grouped product are computed with one load of its matrix;
        1: each row by itself. None is for a size that a run decides."""
        del rows, groups, options
        return 1

    def gathers(self, options: TargetOptions) -> bool:
        """Whether its products read factors as fast where they are gathered from."""
        del options
        return False

    def checks_indices(self, options: TargetOptions) -> bool:
        """Whether a run ends with an error where data bring an index that is out of range."""
        return options.check is not False

    def checks_accesses(self, options: TargetOptions) -> bool:
        """Whether every access of a kernel looks whether it stays inside its buffer."""
        return options.check is True

    def panels(
        self, kernel: KernelOp, nest: NestOp, constants: Collection[int], options: TargetOptions
    ) -> Mapping[int, Packing] | None:
        """Which inputs of a contraction to pack into panels; None: keep operands as they are.

        A schedule that the kernel has already decides, otherwise the target's rules do.
        A `Border` is a copy with its dims in another order. An input whose packing is None stays as
        it is, too; others that are padded get a border.
        """
        del kernel, nest, constants, options
        return None

    def shorten(
        self, nest: NestOp, data: int, windows: Sequence[Window], options: TargetOptions
    ) -> Sequence[Window]:
        """Along which windows of a convolution fewer products pay, in this order: at most two.

        `data`: the input that the windows move over; the other one is a constant filter.
        """
        del nest, data, windows, options
        return ()

    def row_memory(self, options: TargetOptions) -> int:
        """How many bytes a program may keep for its rows between nests of a kernel; 0: none."""
        del options
        return 0

    def joins_online(self, kernel: KernelOp, options: TargetOptions) -> bool:
        """Whether it computes a kernel in one walk, whose sums follow a running maximum, faster
        than the kernels that it was joined from."""
        del kernel, options
        return False

    def online_parts(self, kernel: KernelOp, options: TargetOptions) -> int:
        """Into how many equal parts to cut what such a kernel walks; 1: not at all."""
        del kernel, options
        return 1

    def prefetches(self, options: TargetOptions) -> Caches | None:
        """The caches that programs bring operands into early; None: they cannot, or need not."""
        del options
        return None

    def apart_memory(self, kernel: KernelOp, options: TargetOptions) -> int:
        """Up to how many bytes between them a joined kernel's parts are faster apart; 0: never."""
        del kernel, options
        return 0

    def prepare(self, kernel: KernelOp, options: TargetOptions) -> None:
        """Rewrite a kernel's axes for this target (split, fuse), before scheduling."""
        del kernel, options

    def decodes(self, element: Attribute, options: TargetOptions) -> bool:
        """Whether the target's code has a conversion of its own from a narrow float to f32."""
        del element, options
        return False

    def encodes(self, element: Attribute, options: TargetOptions) -> bool:
        """Whether it has one from f32, by which too large numbers become what they shall."""
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
        """Schedules to try besides `around`, the most promising first.

        `kernel` as the rules meet it before packing: `panels` follows from the schedule on it.
        """
        del kernel, around, options
        return ()

    def tuning_key(self, options: TargetOptions) -> str | None:
        """What the fastest schedules depend on: the machine, and the version of the candidates.
        None: there are no candidates.
        """
        del options
        return None

    def library_keys(self, options: TargetOptions) -> Sequence[str]:
        """What else the speed of kernels depends on where `options.library` says that they may be
        calls: the libraries that there are, with their versions."""
        del options
        return ()

    def library_of(self, kernel: KernelOp, options: TargetOptions) -> str | None:
        """The key of the library of which some of its candidates are calls; None without such."""
        del kernel, options
        return None

    def builder(self, options: TargetOptions) -> Build:
        """What compiles modules in processes that run none; the code is found by `load` then."""
        def build(
            module: ModuleOp, weights: WeightStore, sizes: Mapping[Symbol, int]
        ) -> Sequence[str]:
            del sizes
            self.load(module, weights, options)
            return ()

        return build

    def measures_apart(self) -> bool:
        """Whether what processors do meanwhile does not change the times that a timer tells."""
        return False

    def timer(
        self, executable: Executable, inputs: Sequence[Array], footprint: int,
        options: TargetOptions,
    ) -> Timer:
        """What times a kernel of a model whose constants have `footprint` bytes."""
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
        """Lines for `doctor`: what this machine offers to the target, or what is missing."""
        return []


def target_names() -> list[str]:
    """All targets: our folders, then installed packages'."""
    import targets

    own = [m.name for m in pkgutil.iter_modules(targets.__path__) if m.ispkg]
    return sorted({*own, *(e.name for e in entry_points(group="strata.targets"))})


def find_target(name: str) -> Target:
    """The target of a name. Raises KeyError listing the targets there are."""
    for entry in entry_points(group="strata.targets"):
        if entry.name == name:
            return entry.load()
    if name not in target_names():
        raise KeyError(f"no target {name!r}; there are: {', '.join(target_names())}")
    return importlib.import_module(f"targets.{name}").TARGET
