"""Feature sets: code for any of them can be made anywhere, and run where the processor has it.

$STRATA_CPU_FEATURES makes this machine count as one of a set in all respects.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.__main__ import main
from compiler.diagnostics import StrataError
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from targets.base import TargetOptions
from targets.cpu import TARGET, stored
from targets.cpu import machine as facts
from targets.cpu.machine import FEATURE_SETS, features_here, lacking, machine_of
from targets.cpu.runtime.processors import FEATURES_VARIABLE, NAMED_SETS, processor_facts
from tests.frontend.onnx_models import make_model, save
from tests.models.onnx_graph import OnnxGraph

pytestmark = pytest.mark.skipif(not machine_of().is_x86, reason="feature sets are of x86-64")

WIDEST = {"baseline": "xmm", "avx2": "ymm", "avx512": "zmm", "amx": "tmm"}
"""The registers of each set that those before it have not."""
ORDER = list(FEATURE_SETS)

each_set = pytest.mark.parametrize("features", FEATURE_SETS)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Products of floats and of bytes."""
    g = OnnxGraph({})
    x = g.input("x", np.float32, [64, 80])
    a = g.node("MatMul", x, g.random_weight(80, 96))
    codes = g.input("codes", np.uint8, [64, 80])
    weights = np.random.default_rng(0).integers(-128, 128, (80, 96))
    b = g.node("MatMulInteger", codes, g.constant(weights, np.int8))
    made = make_model(g.nodes, g.inputs, [a, b])
    made.graph.initializer.extend(g.weights)
    return save(made, tmp_path)


@pytest.fixture
def old_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine without AVX."""
    least = FEATURE_SETS["baseline"]
    host = replace(machine_of(), cpu="old", attributes="", features=least.features)
    monkeypatch.delenv(FEATURES_VARIABLE, raising=False)
    monkeypatch.setattr(facts, "_host", lambda: host)


def assembly(model: Path, features: str | None) -> str:
    compilation = Compiler(str(model), CompileOptions(features=features, cache="off", tuned="off"))
    return compilation.emit(compilation.prepare(), "asm")


# ---------------------------------------------------------------------- code for other machines
@each_set
def test_code_is_made_for_features_that_the_machine_lacks(
    model: Path, features: str, old_processor: None
) -> None:
    text = assembly(model, features)
    place = ORDER.index(features)
    assert WIDEST[features] in text
    assert not any(WIDEST[name] in text for name in ORDER[place + 1:])


@each_set
def test_it_is_not_run(model: Path, features: str, old_processor: None) -> None:
    """It is refused before any pass runs."""
    if features == "baseline":
        assert compiler.compile(model, features=features, cache="off")(
            x=np.ones((64, 80), np.float32), codes=np.ones((64, 80), np.uint8))
        return
    with pytest.raises(StrataError) as refused:
        compiler.compile(model, features=features, cache="off")
    text = str(refused.value)
    assert f"this processor (old) lacks {', '.join(sorted(lacking(features)))}" in text
    assert f"'{features}' needs" in text and "not run" in text


def test_it_is_not_loaded_past_the_check(model: Path, old_processor: None) -> None:
    compilation = Compiler(str(model), CompileOptions(features="avx2", cache="off"))
    with pytest.raises(StrataError, match="'avx2' needs"):
        compilation.load(compilation.prepare())


# ---------------------------------------------------------------------- the variable
@pytest.mark.parametrize("features", features_here())
def test_this_machine_counts_as_another(
    model: Path, features: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FEATURES_VARIABLE, features)
    assert machine_of() == machine_of(features)
    assert features_here() == ORDER[:ORDER.index(features) + 1]
    assert assembly(model, None) == assembly(model, features)
    assert stored.lacking(sorted(NAMED_SETS[features])) == []
    assert all(stored.lacking(sorted(NAMED_SETS[name]))
               for name in ORDER[ORDER.index(features) + 1:])
    parts = TARGET.bind(TargetOptions())
    assert parts.scheduling.machine == machine_of(features)
    for name in ORDER[ORDER.index(features) + 1:]:
        with pytest.raises(StrataError, match=f"'{name}' needs"):
            compiler.compile(model, features=name, cache="off")


def test_kept_programs_depend_on_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set[str | None]()
    for features in ("", *features_here()):
        monkeypatch.setenv(FEATURES_VARIABLE, features)
        found.add(processor_facts())
    assert len(found) == 1 + len(features_here())


def test_what_the_machine_lacks_is_an_error(
    model: Path, old_processor: None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for features, message in (("avx512", f"{FEATURES_VARIABLE} is avx512, and this processor (old) "
                                         "lacks avx, avx2, avx512bw"),
                              ("sse", f"{FEATURES_VARIABLE}: the CPU target has no feature set "
                                      "'sse'; there are: baseline, avx2, avx512, amx")):
        monkeypatch.setenv(FEATURES_VARIABLE, features)
        with pytest.raises(StrataError) as refused:
            compiler.compile(model, cache="off")
        assert message in str(refused.value)
        assert main(["doctor"]) == 0
        assert message in capsys.readouterr().out
