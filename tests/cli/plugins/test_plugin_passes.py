"""A plugin's pass that breaks a module is named at once, with and without `verify`."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_plugin_mistakes import a_pass

from tests.cli.conftest import Run

BREAKS = {
    "an empty module": "[op.detach() for op in list(module.body.block.ops)]",
    "no terminator": "next(iter(module.body.ops)).body.block.last_op.detach()",
    "no body": "next(iter(module.body.ops)).body.detach_block(0)",
    "an operand from nowhere": "next(iter(module.body.ops)).body.block.first_op.detach()",
    "a function twice": "module.body.block.add_op(module.body.block.first_op.clone())",
}
PLACES = {"at graph level": "after(graph-cse)", "at host level": "after(host-bufferize)"}


@pytest.mark.parametrize("command", ["verify", "run", "lower"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", BREAKS)
def test_a_pass_that_breaks_the_module(
    strata: Run, small_model: Path, tmp_path: Path, case: str, place: str, command: str
) -> None:
    (tmp_path / "one.py").write_text(a_pass(place=PLACES[place], body=BREAKS[case]))
    done = strata(command, small_model, "--target", "cpu", "--plugin", "one.py",
                  "--passes", "default,mine", *(("--dim", "n=3") if command != "lower" else ()))
    assert done.status == 1, done.err
    assert "a plugin failed in mine" in done.err and "one.py, line 5" in done.err


LAST = """
from dataclasses import dataclass
from compiler.pipeline.levels import CONTROL, SCALARS, Level
from dialects.block import KernelOp
from dialects.host import LaunchOp
from passes.base import StrataPass
from xdsl.dialects.builtin import StringAttr

def rename(module, change):
    for op in module.walk():
        if isinstance(op, KernelOp):
            op.properties["sym_name"] = StringAttr(change(op.sym_name.data))
        if isinstance(op, LaunchOp):
            op.properties["kernel"] = StringAttr(change(op.kernel.data))

@dataclass(frozen=True)
class Mark(StrataPass):
    name = "machine-mark"
    def run(self, context, module):
        rename(module, lambda name: "marked_" + name)

@dataclass(frozen=True)
class Forget(StrataPass):
    name = "machine-forget"
    def run(self, context, module):
        rename(module, lambda name: name.removeprefix("marked_"))

LEVEL = Level("machine", "kernels with a mark", (*CONTROL, "host.*", "block.*", *SCALARS),
              after="block", steps=("machine-mark",), exits={exits})
"""


@pytest.mark.parametrize("exits", [(), ("machine-forget",)])
def test_a_level_after_block_runs(
    strata: Run, small_model: Path, tmp_path: Path, exits: tuple[str, ...]
) -> None:
    (tmp_path / "last.py").write_text(LAST.format(exits=exits))
    words = (small_model, "--target", "cpu", "--plugin", "last.py")
    lowered = strata("lower", *words, "--to", "machine", "--dump-dir", "dumps")
    assert lowered.status == 0 and "block.kernel @marked_" in lowered.out, lowered.err
    assert "marked" not in strata("lower", *words, "--to", "host").out
    done = strata("verify", *words, "--dim", "n=3")
    assert done.status == 0 and "machine-mark" in done.out + done.err, done.err
    assert strata("run", *words, "--dim", "n=3").status == 0
    dump = next((tmp_path / "dumps").glob("*machine-mark.mlir"))
    again = strata("verify", dump, *words[1:], "--dim", "n=3")
    assert again.status == 0, again.err
    assert ("marked" in strata("lower", *words).out) == (exits == ())
