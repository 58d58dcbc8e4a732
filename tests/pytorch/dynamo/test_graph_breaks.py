"""Graphs that end before the program does: what is computed, what is told, and what helps."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import compiler
from compiler.torch.messages.breaks import OTHERWISE, REWRITES, rewrite_of
from tests import processes
from tests.pytorch.dynamo import breaking
from tests.pytorch.dynamo.breaking import PROGRAMS, Breaking, Deep

HERE = Path(breaking.__file__)
OPTIONS = {"threads": 1, "cache": "off"}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture(params=PROGRAMS)
def case(request: pytest.FixtureRequest) -> Breaking:
    return PROGRAMS[request.param]


def places(texts: Any) -> list[int]:
    return [int(n) for text in texts for n in re.findall(rf"{re.escape(str(HERE))}:(\d+) ", text)]


def lines_that_end(function: Callable[..., Any]) -> list[int]:
    """The numbers of a function's lines with the comment."""
    first = function.__code__.co_firstlineno
    text = HERE.read_text().splitlines()[first - 1:]
    rest = next((k for k, line in enumerate(text[1:], 1) if line and not line[0].isspace()),
                len(text))
    return [first + k for k, line in enumerate(text[:rest]) if line.endswith("# ends")]


@torch.no_grad()
def test_numbers_are_those_of_eager_mode(case: Breaking) -> None:
    fast = torch.compile(case.program, backend="strata", options=OPTIONS)
    for x in (torch.randn(3, 4), torch.randn(3, 4) - 2, torch.randn(5, 4)):
        torch.testing.assert_close(fast(x), case.program(x))


@torch.no_grad()
def test_explanations_name_the_line_and_the_rewrite(case: Breaking) -> None:
    """As many graphs and breaks as PyTorch's own explanation tells, at the same lines."""
    x = torch.randn(3, 4)
    theirs = torch._dynamo.explain(case.program)(x)
    torch._dynamo.reset()
    ours = compiler.explain(case.program, x, **OPTIONS)
    assert (ours.captured, len(ours.breaks)) == (theirs.graph_count, len(theirs.break_reasons))
    assert places(b.place for b in ours.breaks) == [
        r.user_stack[-1].lineno for r in theirs.break_reasons] == lines_that_end(case.program)
    [found] = ours.breaks
    assert case.said in found.rewrite and "\n" not in str(found)
    assert f"in {case.program.__name__}: " in found.place
    assert any(found.place in line and found.rewrite in line for line in ours.lines())
    assert ours.json["breaks"] == [found.json] and ours.json["captured"] == ours.captured


@torch.no_grad()
def test_the_rewrite_does_not_break(case: Breaking) -> None:
    if case.rewritten is None:
        pytest.skip("the rewrite moves something out of the program")
    with torch._dynamo.config.patch(dict.fromkeys(case.config, True)):
        fast = torch.compile(case.rewritten, backend="strata", fullgraph=True, options=OPTIONS)
        for x in (torch.randn(3, 4), torch.randn(3, 4) - 2):
            torch.testing.assert_close(fast(x), case.program(x))


def test_every_break_of_a_whole_model() -> None:
    model, x = Deep().eval(), torch.randn(2, 4)
    with pytest.warns(UserWarning, match="half of it"), torch.no_grad():
        theirs = torch._dynamo.explain(model)(x)
        torch._dynamo.reset()
        ours = compiler.explain(model, x, **OPTIONS)
        fast = torch.compile(model, backend="strata", options=OPTIONS)
        torch.testing.assert_close(fast(x), model(x))
    assert (ours.captured, len(ours.breaks)) == (theirs.graph_count, len(theirs.break_reasons))
    assert places(b.place for b in ours.breaks) == [
        r.user_stack[-1].lineno for r in theirs.break_reasons]
    assert {*places(b.place for b in ours.breaks)} <= {
        *lines_that_end(Deep.forward), *lines_that_end(breaking.Inner.forward)}


@torch.no_grad()
def test_graphs_that_pytorch_captures_again_count_once() -> None:
    """A float that one graph gives another: AOTAutograd asks to capture that one anew."""
    def counted(x: torch.Tensor) -> Any:
        count = int((x > 0).sum())
        return x.sum().item(), torch.nonzero(x), x[x > 0], count, x[:count]

    x = torch.randn(9)
    theirs = torch._dynamo.explain(counted)(x)
    torch._dynamo.reset()
    ours = compiler.explain(counted, x, **OPTIONS)
    assert theirs.break_reasons
    assert (ours.captured, len(ours.breaks)) == (theirs.graph_count, len(theirs.break_reasons))


def test_a_program_without_breaks() -> None:
    found = compiler.explain(breaking.plain, torch.randn(3), **OPTIONS)
    assert found.captured == 1 and not found.breaks and not found.eager


def test_levels_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A break is told at level INFO, and is no warning."""
    with torch.no_grad(), caplog.at_level(logging.INFO, "strata"):
        torch.compile(breaking.branches, backend="strata", options=OPTIONS)(torch.randn(3))
    [told] = [r for r in caplog.records if "a graph ends at" in r.getMessage()]
    assert told.levelno == logging.INFO and places([told.getMessage()]) and (
        "torch.cond" in told.getMessage())


SHOWN = f"""
import sys
sys.path.insert(0, {str(HERE.parents[3])!r})
import torch
from tests.pytorch.dynamo.breaking import branches
fast = torch.compile(branches, backend="strata")
for n in (3, 4):
    with torch.no_grad():
        assert fast(torch.ones(n)).shape == (n,)
"""


def test_pytorchs_logs_tell_breaks_recompilations_and_guards(tmp_path: Path) -> None:
    done = processes.run([sys.executable, "-c", SHOWN], cwd=tmp_path, capture_output=True,
                         text=True, env={**os.environ, "STRATA_CACHE": str(tmp_path),
                                         "TORCH_LOGS": "graph_breaks,recompiles,guards"})
    assert done.returncode == 0, done.stderr
    for text in ("strata: a graph ends at ", "torch.cond(", "Recompiling function branches",
                 "GUARDS:"):
        assert text in done.stderr, text
    assert places(done.stderr.splitlines())


def reasons_of_pytorch() -> Iterator[str]:
    """The reasons for which this version of PyTorch breaks graphs, from its registry."""
    import json

    file = Path(torch._dynamo.__file__).with_name("graph_break_registry.json")
    for versions in json.loads(file.read_text()).values():
        found = versions[0]
        hints = "".join(f"\n  Hint: {hint}" for hint in found["Hints"])
        yield f"{found['Gb_type']}\n  Explanation: {found['Explanation']}{hints}"


def test_every_reason_of_pytorch_has_a_rewrite() -> None:
    """Most of them more than the general one, and never only a request to report it."""
    found = list(map(rewrite_of, reasons_of_pytorch()))
    assert len(found) > 100 and all(found) and not [t for t in found if "report an issue" in t]
    assert found.count(OTHERWISE) < 0.5 * len(found)
    assert len({*found} & {text for _, text in REWRITES}) > len(REWRITES) / 2


@pytest.mark.parametrize("backend", ["strata", "eager"])
def test_a_whole_graph_is_demanded(backend: str) -> None:
    """PyTorch's own error names the user's line, whichever the backend."""
    fast: Callable[[Tensor], Tensor] = torch.compile(
        breaking.branches, backend=backend, fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"breaking\.py"):
        fast(torch.ones(3))
