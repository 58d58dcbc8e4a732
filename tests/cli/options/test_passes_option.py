"""The text of `--passes`."""

from __future__ import annotations

import pytest

from compiler.diagnostics import StrataError
from compiler.pipeline.passes_option import edit_steps
from compiler.pipeline.steps import Step

STEPS = [Step("graph", "a"), Step("graph", "b"), Step("graph", "a"), Step("loop", "lower"),
         Step("loop", "c")]


def edited(text: str) -> list[str]:
    return [f"{s.level}:{s.spec}" for s in edit_steps(text, STEPS, "graph")]


def test_default_is_the_pipeline() -> None:
    assert edit_steps("default", STEPS, "graph") == STEPS


@pytest.mark.parametrize(("text", "expected"), [
    ("default,after(a)=x", "graph:a graph:b graph:a graph:x loop:lower loop:c"),
    ("default,before(a)=x", "graph:x graph:a graph:b graph:a loop:lower loop:c"),
    ("default,before(lower)=x", "graph:a graph:b graph:a graph:x loop:lower loop:c"),
    ("default,after(lower)=x", "graph:a graph:b graph:a loop:lower loop:x loop:c"),
    ("default,without(a)", "graph:b loop:lower loop:c"),
    ("default,c{n=3}", "graph:a graph:b graph:a loop:lower loop:c{n=3}"),
    ("default, after(b)=x{n=1,2 m=3} ,without(c)",
     "graph:a graph:b graph:x{n=1,2 m=3} graph:a loop:lower"),
    ("default,after(b)=x,after(x)=y", "graph:a graph:b graph:x graph:y graph:a loop:lower loop:c"),
    ("b,lower,x{n=1}", "graph:b loop:lower loop:x{n=1}"),
    ("", ""),
])
def test_edits(text: str, expected: str) -> None:
    assert " ".join(edited(text)) == expected


@pytest.mark.parametrize(("text", "part"), [
    ("default,after(nothing)=x", "no pass 'nothing'"),
    ("default,without(nothing)", "no pass 'nothing'"),
    ("default,x", "no pass 'x'"),
    ("default,after(a)", "cannot read 'after(a)'"),
    ("default,after(a)=", "cannot read 'after(a)='"),
    ("after(a)=x", "cannot read 'after(a)=x'"),
    ("a b", "cannot read 'a b'"),
    ("a{n=1", "cannot read 'a{n=1'"),
    ("default,without(a)=b", "cannot read"),
])
def test_faults_are_told(text: str, part: str) -> None:
    with pytest.raises(StrataError, match=part.replace("(", r"\(").replace(")", r"\)")
                       .replace("{", r"\{")):
        edited(text)
