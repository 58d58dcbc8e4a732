"""`compiler.tune`: the tuner's Python interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.api import model_of_argument
from compiler.options import CompileOptions
from compiler.tuning.options import TuneOptions
from compiler.tuning.tuner import Tuner

if TYPE_CHECKING:
    from compiler.tuning.report import Report
    from dialects.types import Array


def tune(
    model: object, *, target: str = "cpu", seconds: float = 120.0, jobs: int | None = None,
    kernels: Sequence[str] = (), mode: str = "default", output: str | Path | None = None,
    sizes: Mapping[str, int] | None = None, again: bool = False,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    dims: Mapping[str, int] | None = None, constants: Mapping[str, Array] | None = None,
    plugins: Sequence[str | Path] = (), features: str | None = None,
    cache: str | Path | None = "default", precision: str = "f32", exact: bool = False,
    library: str = "never",
) -> Report:
    """Find faster schedules for a model's kernels by timing candidates, and keep them.

    `seconds`: about how long. `jobs`: processes that compile, None for all processors. `kernels`:
    patterns of names, none for all. `mode`: "default" or "max-autotune". `output`: the file of
    winners, None for the one in the cache, which later compilations use by themselves. `sizes`: at
    which to measure what the model leaves open. `again`: also what was tuned before. The others
    are those of `compiler.compile`, and must be the same there for the kernels to be the same.

    Raises StrataError where the model or the options are at fault.
    """
    options = CompileOptions(
        target=target, shapes={name: tuple(given) for name, given in (shapes or {}).items()},
        dims=dict(dims or {}), constants=dict(constants or {}),
        plugins=tuple(map(Path, plugins)), features=features,
        cache="off" if cache is None else str(cache), precision=precision, exact=exact,
        library=library)
    wanted = TuneOptions.of(
        jobs, seconds=seconds, kernels=tuple(kernels), mode=mode, sizes=dict(sizes or {}),
        output=None if output is None else Path(output), again=again)
    return Tuner([model_of_argument(model)], options, wanted).run()
