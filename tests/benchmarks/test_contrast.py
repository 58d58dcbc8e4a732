"""The page of `benchmarks/contrast`: from the figures that are kept, and what they must hold."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from compiler.pipeline.strategies import GROUPS, STRATEGIES

FOLDER = Path(__file__).parents[2] / "benchmarks" / "contrast"


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"contrast_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    return json.loads((FOLDER / "figures.json").read_text(encoding="utf-8"))


def test_figures_are_whole(figures: dict[str, Any]) -> None:
    assert tuple(figures) == script("run").MODELS
    for found in figures.values():
        assert found["strategies"].keys() == STRATEGIES.keys() and not found["problems"]
        assert [row["group"] for row in found["ablation"]] == list(GROUPS)
        rows = [*found["strategies"].values(), *found["peers"].values()]
        assert all(row["difference"] < 1e-4 and row["ms"] == sorted(row["ms"]) for row in rows)


def test_the_tables_and_the_plot_are_made_of_the_figures(figures: dict[str, Any]) -> None:
    """But for the lines that name the machine."""
    run = script("run")
    kept = (FOLDER / "RESULTS.md").read_text(encoding="utf-8").splitlines()
    made = run.page(figures).splitlines()
    assert [line for line in made if line.startswith("|")] == [
        line for line in kept if line.startswith("|")]
    assert run.plot(figures) == (FOLDER / "speed.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(run.plot(figures))


@pytest.mark.parametrize("slow", [[1.0, 1.1, 1.2], [3.0, 3.1, 3.2]])
def test_only_certain_differences_count(slow: list[float]) -> None:
    factor = script("run")._factor
    assert factor(slow, [1.15, 1.2, 1.3], False) == ("-" if slow[0] < 2 else "2.58x")
    assert factor(slow, [1.15, 1.2, 1.3], True) == factor(slow, None, False) == "-"


def test_every_model_is_made() -> None:
    torch: Any = pytest.importorskip("torch")
    models = script("models")
    for name in script("run").MODELS:
        module, inputs = getattr(models, name)()
        assert all(isinstance(x, torch.Tensor) for x in inputs) and not module.training


# ---------------------------------------------------------------------- on a GPU
def test_the_page_of_a_gpu_says_which_bars_are_reached(figures: dict[str, Any]) -> None:
    """Of figures of a CPU: eager at 4 ms, per-op at 4 / 0.9, the whole graph at 2 or 3.2."""
    cuda = script("cuda")
    made: dict[str, Any] = {}
    for name, busy, whole in (("encoder", 0.95, 2.0), ("mobile", 0.95, 3.2), ("decoder", 0.3, 2.0),
                              ("chain", 0.3, 1.5)):
        found = json.loads(json.dumps(figures[name]))
        for way, ms in (("per-op", 4 / 0.9), ("block", 3.0), ("whole-graph", whole)):
            found["strategies"][way]["ms"] = [ms, ms, ms]
        found["peers"]["torch"]["ms"] = [4.0, 4.0, 4.0]
        made[name] = {**found, "busy": busy, "machine": "a GPU", "seconds": 100.0}
    rows = {row[0]: row for row in (cuda._against(name, found) for name, found in made.items())}
    assert {name: (row[6], row[7]) for name, row in rows.items()} == {
        "encoder": ("1.3x", "yes"), "mobile": ("1.3x", "no"), "decoder": ("2.2x", "no"),
        "chain": ("2.2x", "yes")}
    assert "| encoder | 95% | 4 | 0.90x | 1.33x | 2.00x |" in cuda.page(made)


def test_the_page_of_a_gpu_is_made_of_its_figures() -> None:
    cuda = script("cuda")
    if not cuda.FIGURES.exists():
        pytest.skip("no figures of a GPU are kept")
    kept = json.loads(cuda.FIGURES.read_text(encoding="utf-8"))
    assert cuda.page(kept) == (FOLDER / "CUDA.md").read_text(encoding="utf-8")
    assert cuda.cpu.plot(kept) == (FOLDER / "cuda.svg").read_text(encoding="utf-8")


def test_the_page_of_a_gpu_counts_what_was_measured() -> None:
    cuda = script("cuda")
    kept = json.loads(cuda.FIGURES.read_text(encoding="utf-8"))
    some = {name: kept[name] for name in list(kept)[:3]}
    made = " ".join(cuda.page(some).split())
    assert "[3 models](gpu_models.py)" in made
    told = made.partition("Not measured yet: ")[2].partition(".")[0]
    assert told.split(", ") == [name for name in cuda.MODELS if name not in some]
    assert "Not measured" not in cuda.page(dict.fromkeys(cuda.MODELS, kept["encoder"]))


def test_every_model_for_a_gpu_is_made() -> None:
    torch: Any = pytest.importorskip("torch")
    models = script("gpu_models")
    for name in script("cuda").WAITING:
        module, inputs = getattr(models, name)()
        assert all(x.dtype is torch.float16 for x in (*inputs, *module.parameters()))
