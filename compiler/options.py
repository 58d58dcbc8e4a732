"""What a user may choose about one compilation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from compiler.option_checks import check_options

if TYPE_CHECKING:
    from pathlib import Path

    from dialects.types import Array
    from targets.base import TargetOptions

Sizes = tuple["int | str", ...]
"""The sizes of an input; a size may be a name."""
LIBRARIES = ("auto", "never")
DENORMALS = ("flush", "keep")
PRECISIONS = ("f32", "tf32", "bf16", "fp16", "fp8", "fast")
DEBUG_VARIABLE = "STRATA_DEBUG"
TUNED_VARIABLE = "STRATA_TUNED"
CACHE_VARIABLE = "STRATA_CACHE"
CACHE_SIZE_VARIABLE = "STRATA_CACHE_SIZE"
CACHE_SIZE = 8 << 30
"""Bytes of compiled models that are kept where nobody says how many."""


@dataclass(frozen=True)
class Specialize:
    """Compile a model with open sizes again for the sizes that it is called with most.

    `after`: how many calls with the same sizes it takes. `most`: how many such programs there are
    at a time; the one that was used longest ago makes room. `background`: compile them in a thread
    beside the calls, which is slower for both; else inside the call that makes the sizes due.
    """

    after: int = 8
    most: int = 4
    background: bool = True

    def __post_init__(self) -> None:
        if self.after < 1 or self.most < 1:
            raise ValueError(f"{self}: after and most must be at least 1")


@dataclass(frozen=True)
class CompileOptions:
    """One compilation. Every front end of the compiler (command line, Python) fills this in.

    `shapes`, `dims`: sizes of the model's inputs. `constants`: the contents of inputs that become
    constants of the model, and are no inputs any more. `start`: the level of `--from`.
    `passes`: as `--passes` spells it. `plugins`: files. `schedule`: a file of schedules.
    `weights`: where the weights of a `.mlir` text are, else `weights.npz` beside it.
    `specialize`: when to compile again for sizes that are met often; None is never.
    `exact`: compute quantized models as they are defined, in floats, each operation rounded.
    `denormals`: on the CPU, "flush" takes floats below the least normal one for zeros, "keep"
    computes with them.
    `check`: whether a run looks for wrong indices and accesses; True: for all of them, None: for
    indices where the target can afford it, False: for none.
    `cache`: a folder, "off", or "default". `tuned`: which schedules that `tune` has found are used:
    "auto", "off", or a file. `library`: whether kernels may be calls of a library where tuning has
    found these faster: "auto" or "never". `debug`: verify between all passes, show tracebacks.
    """

    target: str = "cpu"
    shapes: Mapping[str, Sizes] = field(default_factory=lambda: MappingProxyType({}))
    dims: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    constants: Mapping[str, Array] = field(default_factory=lambda: MappingProxyType({}))
    start: str | None = None
    passes: str = "default"
    plugins: tuple[Path, ...] = ()
    schedule: Path | None = None
    weights: Path | None = None
    dump_dir: Path | None = None
    dump_weights: bool = False
    threads: int | None = None
    features: str | None = None
    precision: str = "f32"
    exact: bool = False
    denormals: str = "flush"
    check: bool | None = None
    specialize: Specialize | None = None
    cache: str = "default"
    tuned: str = "auto"
    library: str = "never"
    interpret: bool = False
    debug: bool = field(default_factory=lambda: bool(os.environ.get(DEBUG_VARIABLE)))

    def __post_init__(self) -> None:
        """Raises StrataError for a value that an option cannot have, wherever it comes from."""
        check_options(self)

    def target_options(self) -> TargetOptions:
        from targets.base import TargetOptions

        return TargetOptions(features=self.features, threads=self.threads,
                             cache=cache_folder(self.cache), precision=self.precision,
                             exact=self.exact, denormals=self.denormals,
                             interpret=self.interpret, check=self.check,
                             library=self.library == "auto")


def cache_folder(choice: str) -> Path | None:
    """The folder of compiled code; see `cache_root`."""
    from pathlib import Path

    root = cache_root(choice)
    return None if root is None else Path(root)


def cache_root(choice: str) -> str | None:
    """The folder of all that is kept: `choice` is a folder, `off`, or `default`.

    The default is in $STRATA_CACHE, else in $XDG_CACHE_HOME/strata, else in ~/.cache/strata; None
    where there is no home folder.
    """
    if choice == "off":
        return None
    if choice != "default":
        return os.path.abspath(choice)
    folder = os.environ.get(CACHE_VARIABLE) or _user_caches()
    return None if folder is None else os.path.join(os.path.abspath(folder), "code")


def _user_caches() -> str | None:
    """Our folder among the user's caches. Source: the XDG Base Directory Specification, which has
    paths that are not absolute ignored."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):
        return os.path.join(named, "strata")
    home = os.path.expanduser("~")
    return os.path.join(home, ".cache", "strata") if os.path.isabs(home) else None


def cache_limit() -> int:
    """Bytes of compiled models that are kept: $STRATA_CACHE_SIZE, such as 500M or 2G; 0 is none."""
    text = os.environ.get(CACHE_SIZE_VARIABLE, "").strip().upper().removesuffix("B")
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}.get(text[-1:], 1)
    number = text if unit == 1 else text[:-1]
    return int(number) * unit if number.isdigit() else CACHE_SIZE
