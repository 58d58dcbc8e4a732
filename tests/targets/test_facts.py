"""Numbers that were fitted on a device are that device's facts, and no other device has them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from targets.base import TargetOptions, find_target
from targets.cuda import facts
from targets.cuda.facts.data_sheet import from_data_sheet
from targets.cuda.facts.fitted import Fitted
from targets.cuda.facts.h200 import H200
from targets.cuda.machine import AMD_MACHINES, MACHINES, Machine, machine_of
from targets.cuda.scheduling.products.tiles import tiles
from tests.lowering import STEPS, lower
from tests.op_samples.graph_samples import SAMPLES, build_module

ROOT = Path(__file__).parents[2] / "targets"
OTHERS = [m for m in (*MACHINES.values(), *AMD_MACHINES.values()) if m.arch != "sm_90"]
SEARCHED = [path for folder in ("cuda/scheduling", "cuda/emit/specialized", "cuda/runtime",
                                "cpu/scheduling", "hip")
            for path in sorted((ROOT / folder).rglob("*.py"))]
FRACTIONS = {
    "cuda/scheduling/search.py": {"REPEATED"},  # how candidates are mixed, on any device
    "cuda/runtime/stopwatch.py": {"SECONDS"},  # how long is measured
    "cpu/scheduling/matrices.py": {"FILLED"},  # of a tile's rows: how tiles are cut
    "cpu/scheduling/windows.py": {"MAX_LOSS"},  # of digits, which no device changes
    "cpu/scheduling/tilings.py": {"WASTE"},  # of rows that are computed twice
    "cpu/scheduling/row_blocks.py": {"WASTE"},
    "cpu/scheduling/partial_sums.py": {"TOLERANCE"},  # of the length of a part
}
"""Module constants that are no integers, and were not fitted to any device."""
MEASURED = {
    "cuda/scheduling/attention.py", "cuda/scheduling/products/fma.py",  # errors, not times
    "cuda/scheduling/memory_bound.py", "cuda/emit/specialized/early.py",  # why, without a number
    "cuda/runtime/stopwatch.py",  # how to measure
}
"""Files whose text may name a device on which something was measured."""
DEVICES = re.compile(r"\b(H100|H200|A100|MI300X?|Zen \d|Emerald Rapids)\b")


# ---------------------------------------------------------------------- where numbers stand
def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def fractions(source: str) -> Iterator[str]:
    """The names of module constants with a number that is no integer, or is a time or a rate."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            numbers = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
            divides = any(isinstance(n, ast.Div) for n in ast.walk(node.value))
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if divides or any(isinstance(n, float) for n in numbers):
                yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))


def exponents(source: str) -> Iterator[str]:
    """Numbers inside functions that are times: less than a thousandth, written with an exponent."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from (t.string for t in tokens if t.type == tokenize.NUMBER
                and "e-" in t.string and not t.string.startswith("0x"))


@pytest.mark.parametrize("path", SEARCHED, ids=name_of)
def test_no_fitted_number_stands_outside_of_facts(path: Path) -> None:
    """As far as a test can tell: fitted numbers mostly are fractions, times, or rates.

    An integer, such as a number of warps, may have been chosen by measuring all the same.
    """
    source, name = path.read_text(), name_of(path)
    found = {*fractions(source)} - FRACTIONS.get(name, set())
    assert not found, f"{name}: {sorted(found)}: fitted numbers belong into the device's facts"
    if name != "cuda/runtime/stopwatch.py":
        assert not [*exponents(source)], f"{name}: times belong into the device's facts"
    if name not in MEASURED:
        assert not DEVICES.findall(source), f"{name}: what was measured on a device is its fact"


def test_fitted_numbers_are_found() -> None:
    """What stood in these modules before."""
    assert [*fractions('GAIN, TIME = 0.91, 4\n"""Text 0.5."""')] == ["GAIN", "TIME"]
    assert [*fractions("COST: float = 5 / 8")] == ["COST"]
    assert not [*fractions("WARPS = 4\ndef f():\n    return 0.5\n")]
    assert [*exponents("def f():\n    return 2.1e-6  # 1e-3")] == ["2.1e-6"]


# ---------------------------------------------------------------------- whose numbers they are
def leaves(fitted: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    for field in fields(fitted):
        value = getattr(fitted, field.name)
        if hasattr(value, "__dataclass_fields__"):
            yield from leaves(value, f"{where}{field.name}.")
        else:
            yield where + field.name, value


def test_only_the_h200_and_the_h100_have_what_was_fitted_on_an_h200() -> None:
    assert MACHINES["sm_90"].fitted is H200 and H200.on == "H200"
    for machine in OTHERS:
        assert machine.fitted.on == "" and machine.fitted.copied is None
        assert machine.fitted == from_data_sheet(machine)


def test_every_number_says_its_meaning() -> None:
    """Each field has a docstring of its own; each device says what it was fitted on."""
    source = (ROOT / "cuda" / "facts" / "fitted.py").read_text()
    for class_ in ast.parse(source).body:
        if isinstance(class_, ast.ClassDef) and class_.name != "Fitted":
            kinds = [type(node) for node in class_.body[1:]]
            assert kinds == [ast.AnnAssign, ast.Expr] * (len(kinds) // 2), class_.name


@pytest.mark.parametrize("machine", OTHERS, ids=lambda m: m.arch)
def test_numbers_of_other_devices_can_be_computed_with(machine: Machine) -> None:
    found = dict(leaves(machine.fitted))
    positive = {k: v for k, v in found.items() if isinstance(v, int | float) and k not in (
        "products.short_rows",)}
    assert all(v > 0 for v in positive.values()), positive
    assert replace(machine, clock=2 * machine.clock).fitted != machine.fitted


@pytest.mark.parametrize(("target", "arch"), [("hip", "gfx942"), ("cuda", "sm_80")])
def test_no_number_of_the_h200_reaches_another_device(
    target: str, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every number of the H200 another one, schedules for other devices stay as they are."""
    expected = list(schedules(target, arch))
    broken = _changed(H200)
    assert not {*dict(leaves(broken)).values()} & {None, "H200"}
    monkeypatch.setitem(facts.FITTED, "sm_90", broken)
    assert machine_of("sm_90").fitted is broken
    assert list(schedules(target, arch)) == expected and len(expected) >= 10


def test_schedules_of_the_h200_do_follow_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(schedules("cuda", "sm_90"))
    rows = replace(H200.rows, elements=256, beside=32, height=4)
    monkeypatch.setitem(facts.FITTED, "sm_90", replace(H200, rows=rows))
    assert list(schedules("cuda", "sm_90")) != expected


def _changed(fitted: Any) -> Any:
    """The facts with twice of every number."""
    changes: dict[str, Any] = {}
    for field in fields(fitted):
        value = getattr(fitted, field.name)
        if hasattr(value, "__dataclass_fields__"):
            changes[field.name] = _changed(value)
        elif isinstance(value, tuple):
            changes[field.name] = tuple(2 * n for n in value)
        else:
            changes[field.name] = f"not {value}" if isinstance(value, str) else 2 * value
    return replace(fitted, **changes)


def schedules(target: str, arch: str) -> Iterator[str]:
    """Those of a few samples of every kind."""
    tiles.cache_clear()
    steps = STEPS[: [s.partition("{")[0] for s in STEPS].index("loop-schedule") + 1]
    kinds = ("matmul", "softmax", "conv", "layer_norm", "gather", "max_pool", "reduce_sum", "add")
    chosen = {s.op.name.removeprefix("graph."): s for s in reversed(SAMPLES) if s.operands}
    for kind in kinds:
        module, _, context = build_module(chosen[kind], True)
        options = TargetOptions(features=arch)
        strata = find_target(target).bind(options).context(context.weights)
        list(lower(module, strata, steps))
        yield from re.findall(r"schedule.*", str(module))


def test_all_fitted_devices_are_machines() -> None:
    assert {*facts.FITTED} <= {*MACHINES} | {*AMD_MACHINES}
    assert all(isinstance(f, Fitted) and f.on for f in facts.FITTED.values())
