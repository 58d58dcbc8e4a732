"""Targets in parts: what a new one must define, what it is told if it does not, and who asks what.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from passes.contract import Facts, Rules
from targets.base import KINDS, Target, TargetError, TargetOptions, find_target, questions
from targets.parts import Emission, Part, Running, Scheduling
from targets.reference import ReferenceEmission, ReferenceRunning, ReferenceTarget
from tests.project.import_graph import imports, modules

ROOT = Path(__file__).parents[2]
LAYERS = ("dialects", "passes", "targets", "compiler")
OWN = ("cpu", "cuda", "hip", "reference")
FILES = modules(ROOT, LAYERS)


# ---------------------------------------------------------------------- what a new target defines
def test_three_methods_must_be_defined() -> None:
    """The documents say which; everything else has a default."""
    must = {f"{kind.__name__}.{name}" for kind in KINDS.values()
            for name in getattr(kind, "__abstractmethods__", ())}
    assert must == {"Scheduling.schedule", "Emission.emit", "Running.load"}
    for page in ("targets/README.md", "targets/parts.py"):
        text = (ROOT / page).read_text()
        assert all(name in text for name in must), page


class Least(Target):
    """Nothing but what must be defined, and that from the reference target."""

    scheduling, running = ReferenceTarget.scheduling, ReferenceRunning
    emission = ReferenceEmission


def test_all_else_has_a_default() -> None:
    parts = Least("least", ()).bind(TargetOptions())
    assert parts.facts == Facts("least")
    assert parts.tuning.key() is None and not parts.tuning.library_keys()
    assert not parts.running.measures_apart and Least("least", ()).report() == []
    with pytest.raises(TargetError, match="has no feature sets"):
        Least("least", ()).bind(TargetOptions(features="avx2"))


def test_facts_follow_the_check_option() -> None:
    found = [Least("least", ()).bind(TargetOptions(check=check)).facts
             for check in (None, True, False)]
    assert [f.checks_indices for f in found] == [True, True, False]
    assert [f.checks_accesses for f in found] == [False, True, False]


# ---------------------------------------------------------------------- what it is told
class NoText(Emission):
    """Defines nothing."""


EMPTY: dict[str, Any] = {}


@pytest.mark.parametrize(("body", "message"), [
    (EMPTY, "Wrong.scheduling must be a class that defines schedule"),
    ({"scheduling": Least.scheduling, "emission": NoText, "running": ReferenceRunning},
     "Wrong.emission must be a class that defines emit"),
    ({"scheduling": ReferenceRunning},
     "Wrong.scheduling must be a class derived from targets.parts.Scheduling"),
    ({"scheduling": 3}, "Wrong.scheduling must be a class derived from .* and is 3"),
    ({**vars(Least), "emit": None},
     "Wrong defines emit, which is asked of Wrong.emission"),
    ({**vars(Least), "candidates": (), "schedule": None},
     "Wrong defines candidates, schedule, which is asked of Wrong.scheduling"),
])
def test_a_target_that_lacks_something_is_told(body: dict[str, Any], message: str) -> None:
    kind = type("Wrong", (Target,), {k: v for k, v in body.items() if not k.startswith("_")})
    with pytest.raises(TypeError, match=message):
        kind("wrong", ())


# ---------------------------------------------------------------------- options are bound once
def test_no_question_takes_options() -> None:
    """Neither those of the interface nor those of our own targets."""
    classes = [Rules, *KINDS.values(), *(getattr(find_target(t), k) for t in OWN for k in KINDS)]
    found = [f"{kind.__name__}.{name}" for kind in classes for name, value in vars(kind).items()
             if inspect.isfunction(value) and not name.startswith("_")
             and "options" in inspect.signature(value).parameters]
    assert not found


@pytest.mark.parametrize("name", OWN)
def test_parts_share_settled_options(name: str) -> None:
    parts = find_target(name).bind(TargetOptions(threads=3))
    bound = [getattr(parts, kind) for kind in KINDS]
    assert all(isinstance(part, Part) and part.options is parts.options for part in bound)
    assert all(part.name == name and part.levels == parts.target.levels for part in bound)
    assert parts.options.threads == 3


@pytest.mark.parametrize(("name", "message"), [
    ("cpu", "no feature set 'sm_1'"), ("cuda", "no CUDA architecture 'sm_1'"),
    ("hip", "no architecture 'sm_1'"), ("reference", "has no feature sets"),
])
def test_binding_refuses_what_a_target_cannot_do(name: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        find_target(name).bind(TargetOptions(features="sm_1"))


# ---------------------------------------------------------------------- facts
@pytest.mark.parametrize("name", OWN)
def test_facts_are_frozen_data(name: str) -> None:
    facts = find_target(name).bind(TargetOptions()).facts
    assert facts.target == name
    assert hash(facts) == hash(find_target(name).bind(TargetOptions()).facts)
    assert not any(callable(getattr(facts, f.name)) for f in fields(Facts))
    with pytest.raises(FrozenInstanceError):
        facts.programs = 7  # type: ignore[misc]


def test_each_fact_is_read_by_a_pass() -> None:
    text = "".join(path.read_text() for name, path in FILES.items() if name.startswith("passes."))
    asked = {f.name for f in fields(Facts) if f"facts.{f.name}" in text}
    assert asked == {f.name for f in fields(Facts)}
    ruled = {n for n in vars(Rules) if not n.startswith("_")}
    assert {n for n in ruled if f"rules.{n}" in text} == ruled


def test_a_context_without_a_target_knows_nothing() -> None:
    context = StrataContext.with_dialects()
    assert context.facts == Facts() and context.rules is None
    store = WeightStore()
    bound = find_target("cpu").bind(TargetOptions())
    assert bound.context(store).weights is store
    assert bound.context().facts is bound.facts and bound.context().rules is bound.scheduling


# ---------------------------------------------------------------------- one place for each thing
def test_what_passes_share_imports_no_pass() -> None:
    graph = imports(FILES)
    assert {n for n in graph["passes.base"] if n.startswith("passes")} == {
        "passes.allowance", "passes.contract", "passes.events", "passes.reasons"}
    below = {n for n in graph["passes.contract"] if n.startswith("passes")}
    assert all(n.startswith("passes.analyses.") for n in below)


def test_no_question_is_restated() -> None:
    """What targets are asked is defined in one class each; targets override it."""
    where: dict[str, list[str]] = {}
    for kind in (Rules, *KINDS.values()):
        for name in questions(kind) if issubclass(kind, Part) else vars(Rules):
            if not name.startswith("_") and name in vars(kind):
                where.setdefault(name, []).append(kind.__name__)
    assert all(len(kinds) == 1 for kinds in where.values()), where
    assert not {f.name for f in fields(Facts)} & where.keys()
    assert issubclass(Scheduling, Rules) and not issubclass(Running, Rules)


def deleted_arguments(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every argument that its function deletes."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            names = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
            for node in ast.walk(function):
                if isinstance(node, ast.Delete):
                    yield from ((node.lineno, t.id) for t in node.targets
                                if isinstance(t, ast.Name) and t.id in names)


def test_no_argument_is_deleted() -> None:
    """An argument that one implementation does not need is simply not read there."""
    planted = ast.parse("def f(a, *b, c):\n    if a:\n        del c, b[0]\n")
    assert list(deleted_arguments(planted)) == [(3, "c")]
    found = [f"{path.relative_to(ROOT)}:{line}: del {name}" for path in FILES.values()
             for line, name in deleted_arguments(ast.parse(path.read_text()))]
    assert not found, "\n".join(found)
