"""`compiler.tune`: the tuner's Python interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.api import model_of_argument
from compiler.modes import check_mode
from compiler.option_values import (
    arrays_of,
    names_of,
    numbers_of,
    path_of,
    paths_of,
    setting_of,
    sizes_of,
)
from compiler.options import CompileOptions
from compiler.tuning.options import TuneOptions
from compiler.tuning.tuner import Tuner

if TYPE_CHECKING:
    from compiler.tuning.report import Report
    from dialects.strata.types import Array


def tune(
    model: object, *, target: str = "cpu", seconds: float = 120.0, jobs: int | None = None,
    kernels: Sequence[str] = (), mode: str = "default", output: str | Path | None = None,
    sizes: Mapping[str, int] | None = None, again: bool = False,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    dims: Mapping[str, int] | None = None, constants: Mapping[str, Array] | None = None,
    plugins: Sequence[str | Path] = (), features: str | None = None,
    cache: str | Path | None = "default", precision: str = "f32", exact: bool = False,
    library: str = "never", strategy: str = "whole-graph", with_groups: Sequence[str] = (),
    without_groups: Sequence[str] = (),
) -> Report:
    """Find faster schedules for a model's kernels by timing candidates, and store them.

    `seconds`: about how long. `jobs`: processes that compile, None for all processors. `kernels`:
    patterns of names, none for all. `mode`: "default" or "max-autotune". `output`: the file for
    the schedules, None for the one in the cache, which later compilations use automatically.
    `sizes`: the values of open sizes at which to measure. `again`: also tune kernels that were
    tuned before. The other options are those of `compiler.compile`, and must be the same there for
    the kernels to be the same.

    Raises StrataError for an error in the model or the options.
    """
    check_mode(mode)
    options = CompileOptions(
        target=target, shapes=sizes_of(shapes or {}), dims=numbers_of("dims", dims or {}),
        constants=arrays_of("constants", constants or {}), plugins=paths_of("plugins", plugins),
        features=features,
        cache=setting_of("cache", cache), precision=precision, exact=exact,
        library=library, strategy=strategy,
        with_groups=tuple(names_of("with_groups", with_groups)),
        without_groups=tuple(names_of("without_groups", without_groups)))
    wanted = TuneOptions.of(
        jobs, seconds=seconds, kernels=tuple(names_of("kernels", kernels)), mode=mode,
        sizes=numbers_of("sizes", sizes or {}),
        output=path_of("output", output), again=again)
    return Tuner([model_of_argument(model)], options, wanted).run()
