"""Options of schedules are declared once; whatever else a text says is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from xdsl.utils.exceptions import ParseError

from compiler.plugins.loading import Plugins
from dialects.strata.schedule import parse_schedule
from dialects.strata.schedule_options import SHARED, IntegerOption, KnownOptions
from targets.cpu.scheduling.options import OPTIONS as CPU_OPTIONS
from targets.cuda.scheduling.options import OPTIONS as CUDA_OPTIONS
from targets.cuda.scheduling.options import STAGES, WARPS
from targets.interpreted import LEFT
from tests.cli.conftest import Run

KNOWN = Plugins().schedule_options()
ALL = [*SHARED, *CPU_OPTIONS, *CUDA_OPTIONS, LEFT]
SAMPLES = {"tails": ("mask", "peel", "masks"), "precision": ("f32", "tf32x3", "f33"),
           "library": ("cublas.mk.kn.mn", "cudnn.nhwc.ohwc.p1x1.relu", "cublas"),
           "written": ("scale", "my_kernel", "1")}
"""Two values that an option can have, and one that it cannot."""


@pytest.mark.parametrize("option", ALL, ids=lambda o: o.name)
def test_each_option_reads_what_it_declares(option: IntegerOption) -> None:
    first, second, wrong = SAMPLES.get(option.name, (1, 1, "often"))
    for value in (first, second):
        schedule = parse_schedule(f"<grid i0 tile 1 | {option.name} = {value}>", KNOWN)
        assert schedule.option(option) == value
        assert parse_schedule(str(schedule), KNOWN) == schedule
    with pytest.raises(ParseError, match=f"the option {option.name} of a schedule is "):
        parse_schedule(f"<grid i0 tile 1 | {option.name} = {wrong}>", KNOWN)
    with pytest.raises(ParseError, match="given twice"):
        parse_schedule(f"<| {option.name} = {first}, {option.name} = {first}>", KNOWN)
    assert parse_schedule("<grid i0 tile 1>", KNOWN).option(option) == option.default


@pytest.mark.parametrize(("text", "message"), [
    ("<| tial = peel>", "no option 'tial'; did you mean 'tails'"),
    ("<| stagse = 4>", "no option 'stagse'; did you mean 'stages'"),
    ("<| tails = 3>", "tails of a schedule is one of mask, peel, each, not 3"),
    ("<| stages = many>", "stages of a schedule is an integer from 0 to 64, not many"),
    ("<| warps = 0>", "warps of a schedule is an integer from 1 to 64, not 0"),
    ("<| keep = -1>", "keep of a schedule is an integer from 0 on, not -1"),
    ("<| online = 2>", "online of a schedule is 0 or 1, not 2"),
    ("<| qqqq = 2>", "no option 'qqqq'; there are: atomic, branch"),
])
def test_wrong_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=re.escape(message)):
        parse_schedule(text, KNOWN)


def test_names_are_declared_once() -> None:
    names = [option.name for option in ALL]
    assert len(names) == len(set(names))


def test_the_own_target_comes_first() -> None:
    own = IntegerOption("warps", 1, "something else", "mine", least=100)
    known = KnownOptions((own,), lambda: CUDA_OPTIONS)
    assert not known.faults([("warps", 100), ("stages", 2)])
    assert known.faults([("warps", 4)]) and known.faults([("wraps", 4)])


def test_defaults_are_the_declared_ones() -> None:
    schedule = parse_schedule("<| warps = 8>", KNOWN)
    assert (schedule.option(WARPS), schedule.option(STAGES)) == (8, 1)
    assert schedule.option(STAGES, 3) == 3 and schedule.given("stages") is None


def test_list_options_prints_the_declarations(strata: Run) -> None:
    done = strata("list", "options")
    assert done.status == 0, done.err
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert set(lines) == {option.name for option in ALL}
    for option in ALL:
        assert all(part in lines[option.name] for part in (
            option.meaning, option.values, option.owner))


TARGET = """
from dialects.strata.schedule import Level, Schedule
from dialects.strata.schedule_options import FlagOption, IntegerOption
from targets.parts import Scheduling
from targets.reference import ReferenceTarget

class MyScheduling(Scheduling):
    def schedule(self, kernel):
        return Schedule(tuple(Level("loop", a) for a in kernel.axes), ((NAME, 2),))

class Mine(ReferenceTarget):
    scheduling = MyScheduling
    schedule_options = (IntegerOption("tiling", 2, "how it is tiled", "mine", least=1, most=4),)

TARGET = Mine("mine", (), "a target of one's own")
"""


def test_a_plugins_target_declares_its_own(strata: Run, small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TARGET.replace("NAME", '"tiling"'))
    words = ("--plugin", "mine.py", "--target", "mine")
    done = strata("lower", small_model, *words, "--to", "loop", "-o", "out.mlir")
    assert done.status == 0, done.err
    assert "| tiling = 2>" in (tmp_path / "out.mlir").read_text()
    assert "how it is tiled" in strata("list", "options", "--plugin", "mine.py").out
    words = (*words, "--weights", str(small_model))
    done = strata("lower", "out.mlir", *words, "--to", "loop")
    assert done.status == 0, done.err
    text = (tmp_path / "out.mlir").read_text()
    (tmp_path / "bad.mlir").write_text(text.replace("tiling = 2", "tilling = 2", 1))
    done = strata("lower", "bad.mlir", *words, "--to", "loop")
    assert done.status == 1 and "no option 'tilling'; did you mean 'tiling'?" in done.err
    row = next(k for k, line in enumerate(text.splitlines(), 1) if "tiling = 2" in line)
    column = text.splitlines()[row - 1].index("tiling") + 1
    assert re.search(rf"bad\.mlir\D+{row}\D+{column}\b", done.err), done.err


def test_rules_with_an_undeclared_option_are_told(
    strata: Run, small_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(TARGET.replace("NAME", '"tilings"'))
    done = strata("lower", small_model, "--plugin", "mine.py", "--target", "mine", "--to", "loop")
    assert done.status == 1
    assert "the rules of target mine for @contract_0: a schedule has no option 'tilings'; " \
           "did you mean 'tiling'?" in done.err


@pytest.mark.parametrize(("passes", "parts"), [
    ("block-check-accesses{alwys=true}", ("has no option 'alwys'", "did you mean always?")),
    ("block-check-accesses{always=3}", ("always of block-check-accesses is true or false, not 3",)),
    ("host-plan-buffers{in-place=maybe}", ("is true or false, not maybe",)),
    ("loop-fuse{limit=3}", ("loop-fuse has no option 'limit'", "there are: across")),
    ("graph-fix-sizes{names=1,2 values=2}", ("names of graph-fix-sizes is texts",)),
    ("graph-fix-sizes", ("needs the option 'names'", "needs the option 'values'")),
])
def test_wrong_options_of_passes(
    strata: Run, small_model: Path, passes: str, parts: tuple[str, ...]
) -> None:
    done = strata("lower", small_model, "--target", "reference", "--to", "block",
                  "--passes", f"default,after(graph-cse)={passes}")
    assert done.status == 1
    assert all(part in done.err for part in parts), done.err
