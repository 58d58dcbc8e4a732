"""The options of a compilation."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from compiler.diagnostics import Problem, StrataError
from compiler.option_values import (
    MOST_THREADS,
    Sizes,
    has_length_of_path,
    integer_of,
    is_name,
    path_of,
    shown,
    threads_of,
    truth_of,
)
from compiler.pipeline.strategies import (
    ONE_LAUNCH,
    SHARE,
    WHOLE_GRAPH,
    groups_of,
    strategy_problems,
)
from compiler.suggestions import hint_for
from dialects.records import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from dialects.strata.types import Array
    from targets.base import TargetOptions

AUTO, OFF = "auto", "off"
"""Values of `tuned`, which may also be a file."""
LIBRARIES = ("auto", "never")
DENORMALS = ("flush", "keep")
PRECISIONS = ("f32", "tf32", "bf16", "fp16", "fp8", "fast")
TEXT_SUFFIX = ".mlir"
"""The suffix of a model that is the text of a level."""
FLAGS = ("exact", "interpret", "dump_weights", "debug")
"""The options that are True or False."""
PATHS = ("schedule", "weights", "dump_dir")
"""The options that are paths, which may be texts."""
DEBUG_VARIABLE = "STRATA_DEBUG"
TUNED_VARIABLE = "STRATA_TUNED"
CACHE_VARIABLE = "STRATA_CACHE"
CACHE_SIZE_VARIABLE = "STRATA_CACHE_SIZE"
CACHE_SIZE = 8 << 30
"""The default limit of the cache in bytes."""


@dataclass(frozen=True)
class Specialize:
    """Compile a model with open sizes again for the sizes with which it is called most often.

    `after`: the number of calls with the same sizes before they get a specialized program. `most`:
    the maximum number of specialized programs; the least recently used is evicted. `background`:
    compile in a thread concurrently with calls, which slows both down; otherwise inside the call
    that reaches the number.
    """

    after: int = 8
    most: int = 4
    background: bool = True

    def __post_init__(self) -> None:
        """Raises StrataError naming every parameter with an invalid value."""
        problems = [Problem(f"{name} is {shown(value)}; it must be a number from 1 on")
                    for name in ("after", "most")
                    if (integer_of(value := getattr(self, name)) or 0) < 1]
        if truth_of(self.background) is None:
            problems.append(Problem(f"background is {shown(self.background)}; it must be True or "
                                    "False"))
        if problems:
            raise StrataError("the model cannot be specialized so", problems)


@dataclass(frozen=True)
class CompileOptions:
    """The options of one compilation, filled in by the command line and the Python interface.

    `shapes`, `dims`: sizes of the model's inputs. `constants`: the contents of inputs that become
    constants of the model. `start`: the level of `--from`. `passes`: as `--passes` spells it.
    `strategy`: which groups of passes optimize: "per-op", "block" or "whole-graph"; `with_groups`
    are added to those of the strategy, and `without_groups` are left out. `plugins`: files.
    `schedule`: a file of schedules. `weights`: the weights of a `.mlir` text, by default
    `weights.npz` in the same folder. `specialize`: when to specialize for frequent sizes; None
    means never. `exact`: compute quantized models as defined, in floats, rounding each
    operation. `denormals`: on the CPU, "flush" treats denormal floats as zeros, "keep" computes
    with them. `check`: whether a run checks indices and accesses. True checks all of them, None
    checks indices if the target can afford it, and False checks none. `cache`: a folder, "off", or
    "default". `tuned`: which of the schedules found by `tune` to use: "auto", "off", or a file.
    `outcomes`: of choices that depend on sizes, set when a model is compiled again for a call.
    `mesh`: the axes of the ranks among which the model is divided, such as "dp=2,tp=2"; empty for
    one rank. `rank`: the one for which a program is made; None for a program that all can run.
    `beside`: for the CPU, all feature sets of a library, whose codes read constants that are packed
    for the best of them.
    `library`: whether kernels may be library calls where tuning has found these faster: "auto" or
    "never". `triple`: for the CPU, the architecture and system to compile for; None means this
    machine. `debug`: verify between all passes, show tracebacks.
    """

    target: str = "cpu"
    shapes: Mapping[str, Sizes] = field(default_factory=lambda: MappingProxyType({}))
    dims: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    constants: Mapping[str, Array] = field(default_factory=lambda: MappingProxyType({}))
    outcomes: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, "tuple[str, ...]"])  # not a proxy: processes of `tune` pickle it
    start: str | None = None
    passes: str = "default"
    strategy: str = WHOLE_GRAPH
    with_groups: tuple[str, ...] = ()
    without_groups: tuple[str, ...] = ()
    plugins: tuple[Path, ...] = ()
    schedule: Path | None = None
    weights: Path | None = None
    dump_dir: Path | None = None
    dump_weights: bool = False
    threads: int | None = None
    features: str | None = None
    beside: tuple[str, ...] = ()
    triple: str | None = None
    precision: str = "f32"
    exact: bool = False
    denormals: str = "flush"
    check: bool | None = None
    specialize: Specialize | None = None
    cache: str = "default"
    tuned: str = AUTO
    library: str = "never"
    interpret: bool = False
    mesh: str = ""
    rank: int | None = None
    debug: bool = field(default_factory=lambda: bool(os.environ.get(DEBUG_VARIABLE)))

    def __post_init__(self) -> None:
        """Raises StrataError naming every option with an invalid value."""
        problems = list(_problems(self))
        if problems:
            raise StrataError("the options cannot be used", problems)
        for name in ("threads", *FLAGS, "check"):  # numbers and truth values of NumPy
            value, read = getattr(self, name), threads_of if name == "threads" else truth_of
            object.__setattr__(self, name, None if value is None else read(value))
        for name in PATHS:
            if isinstance(path := getattr(self, name), str):
                object.__setattr__(self, name, path_of(name, path))

    @property
    def shares_layers(self) -> bool:
        """Whether the passes make a function of equal layers, whatever the model."""
        return self.passes == "default" and not self.mesh and SHARE in self.groups

    @property
    def groups(self) -> frozenset[str]:
        """The groups of passes that optimize."""
        return groups_of(self.strategy, self.with_groups, self.without_groups)

    def target_options(self) -> TargetOptions:
        from targets.options import TargetOptions

        return TargetOptions(features=self.features, beside=self.beside, triple=self.triple,
                             threads=self.threads, cache=cache_folder(self.cache),
                             precision=self.precision, exact=self.exact, denormals=self.denormals,
                             interpret=self.interpret, check=self.check,
                             library=self.library == "auto",
                             one_launch=ONE_LAUNCH in self.groups)


# ---------------------------------------------------------------------- checks
def _problems(options: CompileOptions) -> Iterator[Problem]:
    yield from _one_of("precision", options.precision, PRECISIONS)
    yield from _one_of("denormals", options.denormals, DENORMALS)
    yield from _one_of("library", options.library, LIBRARIES)
    yield from _mesh_problems(options)
    yield from strategy_problems(options.strategy, options.with_groups, options.without_groups)
    yield from _flags(options)
    yield from _texts(options)
    yield from _collections(options)
    threads = options.threads
    if threads is not None and threads_of(threads) is None:
        yield Problem(f"threads is {shown(threads)}; it must be a number from 1 to "
                      f"{MOST_THREADS}, or None for all")
    yield from _paths(options)
    chosen = cast(object, options.specialize)
    if chosen is not None and not isinstance(chosen, Specialize):
        yield Problem(f"specialize is {shown(chosen)}; it must be a compiler.Specialize, or None")


def _one_of(option: str, value: object, known: Sequence[str]) -> Iterator[Problem]:
    if not isinstance(value, str) or value not in known:
        yield Problem(f"{option} is {shown(value)}, which is none of its values",
                      hint=hint_for(value if isinstance(value, str) else "", known))


def _mesh_problems(options: CompileOptions) -> Iterator[Problem]:
    mesh, rank, world = cast(object, options.mesh), integer_of(options.rank), 0
    if not isinstance(mesh, str):
        yield Problem(f"mesh is {shown(mesh)}; it must be a text such as 'dp=2,tp=2'")
    elif mesh:
        from dialects.ranks.mesh import Mesh

        try:
            world = Mesh.parse(mesh).world
        except ValueError as error:
            yield Problem(f"mesh is {shown(mesh)}: {error}")
    if options.rank is not None and not (rank is not None and 0 <= rank < world):
        yield Problem(f"rank is {shown(options.rank)}; it must be None, or that of one of the "
                      f"{world} ranks of the mesh")


def _flags(options: CompileOptions) -> Iterator[Problem]:
    for name in FLAGS:
        value = getattr(options, name)
        if truth_of(value) is None:
            yield Problem(f"{name} is {shown(value)}; it must be True or False")
    if options.check is not None and truth_of(options.check) is None:
        yield Problem(f"check is {shown(options.check)}; it must be True, False, or None")


def _texts(options: CompileOptions) -> Iterator[Problem]:
    for name in ("target", "passes", "cache", "tuned"):
        value = getattr(options, name)
        if not isinstance(value, str) or not value:
            yield Problem(f"{name} is {shown(value)}; it must be a text")
        elif not is_name(value):
            yield Problem(f"{name} is {shown(value)}, which has characters that a name cannot have")
    for name in ("features", "triple", "start"):
        value = getattr(options, name)
        if value is not None and (not isinstance(value, str) or not value):
            yield Problem(f"{name} is {shown(value)}; it must be a text, or None")


def _collections(options: CompileOptions) -> Iterator[Problem]:
    for name in ("shapes", "dims", "constants"):
        value = getattr(options, name)
        if not isinstance(value, Mapping):
            yield Problem(f"{name} is {shown(value)}; it must be a mapping")
    plugins = cast(object, options.plugins)
    if not isinstance(plugins, tuple | list):
        yield Problem(f"plugins is {shown(plugins)}; it must be a tuple of paths")


def _paths(options: CompileOptions) -> Iterator[Problem]:
    tuned = None if options.tuned in (AUTO, OFF) else options.tuned
    for name, path in (*((name, getattr(options, name)) for name in PATHS), ("tuned", tuned)):
        if path is None:
            continue
        if not isinstance(cast(object, path), str | os.PathLike):
            yield Problem(f"{name} is {shown(path)}; it must be a path, or None")
        elif name in ("schedule", "tuned") and not _is_file(path):
            yield Problem(f"{name} is {shown(os.fspath(path))}, and there is no such file")
    folder = options.dump_dir  # a cache that cannot be written is no error
    if isinstance(cast(object, folder), str | os.PathLike) and folder and os.path.isfile(folder):
        yield Problem(f"cannot write the dumps: dump_dir is {shown(os.fspath(folder))}, which is a "
                      "file and no folder")


def _is_file(path: str | os.PathLike[str]) -> bool:
    text = os.fspath(path)
    return is_name(text) and has_length_of_path(text) and os.path.exists(text) and (
        not os.path.isdir(text))


# ---------------------------------------------------------------------- the cache
def cache_folder(choice: str) -> Path | None:
    """The folder of compiled code; see `cache_root`."""
    from pathlib import Path

    root = cache_root(choice)
    return None if root is None else Path(root)


def cache_root(choice: str) -> str | None:
    """The root folder of the cache: `choice` is a folder, `off`, or `default`.

    The default is in $STRATA_CACHE, else in $XDG_CACHE_HOME/strata, else in ~/.cache/strata; None
    if there is no home folder.
    """
    if choice == "off":
        return None
    if choice != "default":
        return os.path.abspath(choice)
    folder = os.environ.get(CACHE_VARIABLE) or _user_caches()
    return None if folder is None else os.path.join(os.path.abspath(folder), "code")


def _user_caches() -> str | None:
    """Strata's folder in the user's cache folder.

    Source: the XDG Base Directory Specification, which ignores relative paths.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):
        return os.path.join(named, "strata")
    home = os.path.expanduser("~")
    return os.path.join(home, ".cache", "strata") if os.path.isabs(home) else None


def cache_limit() -> int:
    """The limit of the cache in bytes: $STRATA_CACHE_SIZE, such as 500M or 2G; 0 disables it."""
    text = os.environ.get(CACHE_SIZE_VARIABLE, "").strip().upper().removesuffix("B")
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}.get(text[-1:], 1)
    number = text if unit == 1 else text[:-1]
    return int(number) * unit if number.isdigit() else CACHE_SIZE
