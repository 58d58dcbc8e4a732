"""Importing and lowering take work in proportion to the number of nodes, and weights once.

Work is counted in function calls, not in seconds: the count is the same on every machine.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from cProfile import Profile
from pathlib import Path
from types import ModuleType

import pytest

from compiler.frontend import load_model
from compiler.pipeline.steps import PIPELINE
from dialects.text.syntax import location
from passes.registry import find_pass
from targets.base import TargetOptions, find_target
from tests import processes

LARGE = Path(__file__).parents[2] / "benchmarks" / "large"
Work = dict[str, int]


@pytest.fixture(scope="session")
def models() -> ModuleType:
    """What makes the models of the benchmarks."""
    spec = importlib.util.spec_from_file_location("large_models", LARGE / "models.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["large_models"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def work_of(path: Path) -> Work:
    """The function calls of the import and of every step of the pipeline, for names of nodes that
    are new."""
    location.cache_clear()
    profile = Profile()
    model = profile.runcall(load_model, path)
    work = {"import": calls_in(profile)}
    context = find_target("cpu").bind(TargetOptions()).context(model.weights)
    for number, step in enumerate(PIPELINE):
        profile = Profile()
        profile.runcall(find_pass(step.spec)().apply, context, model.module)
        work[f"{number} {step.name}"] = calls_in(profile)
    return work


def calls_in(profile: Profile) -> int:
    return sum(entry.callcount for entry in profile.getstats())


def check_growth(models: ModuleType, folder: Path, kind: str, count: int, width: int) -> None:
    """In every step, twice as many more layers may cost a little more than twice as many more
    calls: some layers at the ends may be no calls of a shared function, so costs need not begin at
    none."""
    paths = [folder / f"{times}.onnx" for times in (1, 2, 4)]
    for path in paths:
        models.make(kind, path, int(path.stem) * count, width)
    work_of(paths[0])  # imports what it needs, and fills caches of types
    small, more, most = map(work_of, paths)
    steep = {step: (small[step], more[step], calls) for step, calls in most.items()
             if calls - more[step] > 2.15 * (more[step] - small[step]) + 1000}
    assert not steep, f"calls in steps that grow faster than the model: {steep}"


@pytest.mark.parametrize(("kind", "count", "width"), [
    ("transformer", 4, 32), ("convolutions", 6, 8)])
def test_work_grows_with_the_number_of_nodes(
    models: ModuleType, tmp_path: Path, kind: str, count: int, width: int
) -> None:
    check_growth(models, tmp_path, kind, count, width)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count", "width"), [
    ("transformer", 25, 32), ("convolutions", 50, 8), ("chain", 600, 32)])
def test_work_of_thousands_of_nodes(
    models: ModuleType, tmp_path: Path, kind: str, count: int, width: int
) -> None:
    check_growth(models, tmp_path, kind, count, width)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux tells of a process's memory")
def test_compiling_holds_the_weights_once(models: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    models.make("perceptron", path, 12, 3072, 1)  # not even aligned
    done = processes.run([sys.executable, LARGE / "memory.py", "--one", path], check=True,
                         capture_output=True, text=True)
    start, *_, loaded, _ = json.loads(done.stdout.splitlines()[-1])
    weights = path.with_suffix(".weights").stat().st_size / 1e6
    folded = 256 * 2**20 / 1e6  # what constant folding may take
    assert loaded["peak"] - start["peak"] < 1.3 * weights + folded
    assert loaded["own"] - start["own"] < 1.1 * weights + 50
