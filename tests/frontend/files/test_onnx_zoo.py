"""Real models: they import without a rest of shape computations, and compute what they should.

The folder that STRATA_ZOO names holds the models and a `models.json` that describes their inputs
and tolerances; `zoo.py` beside that file makes the inputs and compares.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from compiler.frontend import ImportedModel, load_model
from dialects.graph.base import GraphOp
from dialects.graph.constant import ConstantOp, RangeOp, SizesOp
from dialects.graph.fold_sizes import fold_sizes
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import main_function
from dialects.strata.types import Array
from dialects.text.syntax import location_name
from dialects.verifying import verify

FOLDER = os.environ.get("STRATA_ZOO")
pytestmark = pytest.mark.skipif(
    not FOLDER, reason="STRATA_ZOO is unset: it must name a folder of models")

SMALL = ("ppocr_v4_det", "ppocr_v4_rec", "ppocr_v2_cls", "magika", "light_squeezenet", "resnet50",
         "mobilenet_v2", "shufflenet_v2", "silero_v6_no_if")
LARGE = ("bert_base", "bert_base_dyn", "gpt2_prefill", "whisper_tiny_encoder")


def imported(name: str) -> ImportedModel:
    path = Path(FOLDER or "") / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return load_model(path)


@pytest.mark.parametrize("name", SMALL + LARGE)
def test_models_import(name: str):
    model = imported(name)
    verify(model.module)
    assert model.name == name
    known: dict[object, Array] = {}
    for op in main_function(model.module).walk():
        if not isinstance(op, GraphOp):
            continue
        assert location_name(op)
        value = fold_sizes(op, [known.get(o) for o in op.operands], EvaluationContext())
        sources = (ConstantOp, SizesOp, RangeOp)
        assert value is None or isinstance(op, sources), f"{op} could have been computed"
        if value is not None:
            known[op.results[0]] = value


def zoo_tools() -> ModuleType:
    """`zoo.py`, found in the zoo's folder or where STRATA_ZOO_TOOLS says."""
    folder = Path(os.environ.get("STRATA_ZOO_TOOLS") or FOLDER or "")
    if not (folder / "zoo.py").exists():
        pytest.skip(f"there is no zoo.py in {folder}; STRATA_ZOO_TOOLS may name another folder")
    spec = importlib.util.spec_from_file_location("zoo", folder / "zoo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["zoo"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_models_compute_what_onnxruntime_does(name: str):
    from dialects.graph.interpret import evaluate_func

    tools: Any = zoo_tools()
    entry: dict[str, Any] = tools.Zoo.load()[name]
    model = imported(name)
    function = main_function(model.module)
    for case in entry["cases"]:
        feeds = tools.make_inputs(case)
        results = evaluate_func(function, [feeds[n] for n in function.input_names],
                                EvaluationContext(weights=model.weights))
        expected = tools.reference(tools.model_path(name, Path(FOLDER or "")), feeds)
        named = dict(zip(function.output_names, results, strict=True))
        ok, rows = tools.compare(named, expected, **entry["tolerance"])
        assert ok, rows
