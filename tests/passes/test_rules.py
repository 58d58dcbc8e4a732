"""Every rewriting rule fires on instances of its own pattern, and keeps what they compute.

The rules are those that `rewrite` is given, by any pass, and all that the modules of
`passes/graph/rules` list. Each has a generator in `tests/passes/instances`, whose instances are
executed on random numbers, at several sizes, before and after.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import passes.graph
import passes.loop
import passes.rewrites.graph
from dialects.graph.base import CompositeOp
from dialects.graph.interpret import evaluate_func
from dialects.ranks.attributes import world_of
from dialects.ranks.peers import run_ranks
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import main_function
from dialects.strata.types import Array, TensorType
from dialects.verifying import verify
from passes import rewriting
from passes.base import StrataContext
from passes.graph_to_loop.rules import lowering_rules
from passes.registry import parse_passes
from targets.base import TargetOptions, find_target
from targets.reference.interpret import inputs_of_rank, interpret_rank
from tests.op_samples.graph_samples import SAMPLES
from tests.passes.harness import assert_same, parse
from tests.passes.instances import graph, loop, products, quantization
from tests.passes.instances.writing import Draw, Instance

INSTANCES = {**graph.INSTANCES, **loop.INSTANCES, **products.INSTANCES,
             **quantization.INSTANCES}
TIMES = 6
"""Instances per rule."""
TEXTS = Path(__file__).parent
LOWERED = ("decompose",)
"""Rules of a whole class of operations, which every operation's sample tests."""


@pytest.fixture
def fired(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each rule that any pass is given has rewritten something; 0 if never."""
    counts: Counter[str] = Counter()
    original = rewriting._Driver.__init__

    def counted(rule: Callable[..., Any]) -> Callable[..., Any]:
        counts[rule.__name__] += 0

        def tried(op: Any, at: Any) -> Any:
            found = rule(op, at)
            counts[rule.__name__] += found is not None
            return found
        return tried

    def init(self: Any, root: Any, rules: Mapping[Any, Sequence[Any]], context: Any) -> None:
        original(self, root, {c: [counted(r) for r in rs] for c, rs in rules.items()}, context)

    monkeypatch.setattr(rewriting._Driver, "__init__", init)
    yield counts


def listed_rules() -> set[str]:
    """The names of all rules in tables of the graph's and loops' modules."""
    names: set[str] = set()
    for package in (passes.graph, passes.rewrites.graph, passes.loop):
        for entry in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(entry.name)
            for name, table in vars(module).items():
                if re.fullmatch(r"[A-Z]\w*_RULES", name):
                    rules = [r for rs in table.values() for r in rs] if isinstance(
                        table, dict) else table
                    names |= {rule.__name__ for rule in rules}
    return names


def context_of(instance: Instance) -> StrataContext:
    if not instance.target:
        return StrataContext.with_dialects()
    name, _, features = instance.target.partition(" ")
    return find_target(name).bind(TargetOptions(features=features or None,
                                               precision=instance.precision)).context()


def inputs_of(types: Sequence[TensorType], least: int, source: np.random.Generator) -> list[Array]:
    """Random numbers; sizes from `least` up."""
    symbols = sorted({s for t in types for e in t.shape for s in e.symbols})
    sizes = {symbol: least + k for k, symbol in enumerate(symbols)}
    found: list[Array] = []
    for t in types:
        shape = [int(e.evaluate(sizes)) for e in t.shape]
        if t.dtype.kind in "biu":
            low, high = (0, 2) if t.dtype.kind == "b" else (-9 if t.dtype.kind == "i" else 0, 10)
            found.append(np.asarray(source.integers(low, high, shape)).astype(t.dtype))
        else:
            found.append(np.asarray(source.standard_normal(shape)).astype(t.dtype))
    return found


def check(instance: Instance, seed: int) -> None:
    """The instance computes the same after the passes, at several sizes."""
    context = context_of(instance)
    module = parse(instance.text, context)
    func = main_function(module)
    types = [a.type for a in func.body.block.args if isinstance(a.type, TensorType)]
    source = np.random.default_rng(seed)
    runs = [inputs_of(types, least, source) for least in (1, 2, 6)]
    with np.errstate(all="ignore"):
        ranks = world_of(module)
        wanted = [_run(module, run, context, ranks) for run in runs]
        for pass_ in parse_passes(instance.passes):
            pass_.apply(context, module)
            verify(module)
        for run, before in zip(runs, wanted, strict=True):
            for a, b in zip(_run(module, run, context, ranks), before, strict=True):
                exact = b.dtype.kind in "biu"
                assert_same(a, b, 0.0 if exact else instance.tolerance)


def _run(
    module: Any, inputs: Sequence[Array], context: StrataContext, ranks: int = 1
) -> list[Array]:
    """The results; of several ranks, which have different inputs, those of all."""
    if ranks > 1:
        return [a for found in run_ranks(ranks, lambda peers: interpret_rank(
            module, context.weights, inputs_of_rank(inputs, peers.rank), peers)) for a in found]
    return evaluate_func(main_function(module), inputs, EvaluationContext(weights=context.weights))


@pytest.mark.parametrize("rule", sorted(INSTANCES))
def test_rules_keep_what_their_instances_compute(rule: str, fired: Counter[str]) -> None:
    for seed in range(TIMES):
        before = fired[rule]
        instance = INSTANCES[rule](Draw(Random(seed)))
        try:
            check(instance, seed)
        except AssertionError as error:
            raise AssertionError(f"instance {seed}:\n{instance.text}\n{error}") from error
        assert fired[rule] > before, f"instance {seed} is none of {rule}:\n{instance.text}"


def test_every_rule_has_instances(fired: Counter[str]) -> None:
    """All rules that are listed, or that fire in a text of `tests/passes`, have a generator."""
    from tests.passes.harness import check_file

    for path in sorted(TEXTS.glob("*/*.mlir")):
        if path.parent.name in ("graph", "loop"):
            check_file(path.read_text(encoding="utf-8"))
    lowered = {rule.__name__ for rules in lowering_rules().values() for rule in rules}
    known = (listed_rules() | set(fired)) - lowered - set(LOWERED)
    assert len(known) > 50
    assert known - set(INSTANCES) == set(), "these rules have no generator"
    assert set(INSTANCES) - known == set(), "these are gone"


def test_every_lowering_and_decomposition_has_a_sample() -> None:
    sampled = {sample.op for sample in SAMPLES}
    assert {c.name for c in lowering_rules()} - {c.name for c in sampled} == set()
    composites = {c for c in _subclasses(CompositeOp) if c.name.startswith("graph.")}
    assert {c.name for c in composites} - {c.name for c in sampled} == set()


def _subclasses(class_: type[Any]) -> Iterator[type[Any]]:
    for sub in class_.__subclasses__():
        if "name" in vars(sub):
            yield sub
        yield from _subclasses(sub)
