"""What the compiler makes of models and kernels is what the table says, number by number."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from targets.cpu import machine as facts
from tests import processes
from tests.counts.assembly import Loops, innermost_loops
from tests.counts.count import AVX512, CODE, SM_90, count
from tests.counts.kernels import KERNELS
from tests.counts.machine import SERVER
from tests.counts.models import MODELS, attention, groups, quantized, transformer
from tests.counts.table import (
    CUBINS,
    SECTIONS,
    TABLE,
    Section,
    Table,
    changes,
    complaint,
    installed_versions,
    other_version,
    read_table,
    table_text,
)

ROOT = Path(__file__).parents[2]
RECORDED = read_table(TABLE.read_text())
FIRST = SECTIONS[0]


def check(section: Section) -> None:
    """Skips, once all else is compared, where code is made by another version."""
    lines = changes(section, section.counted(), RECORDED)
    assert not lines, complaint(lines)
    if reason := other_version(section, RECORDED):
        pytest.skip(reason)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda s: s.title)
def test_counts_are_those_of_the_table(section: Section) -> None:
    check(section)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_cubins_are_those_of_the_table() -> None:
    if reason := other_version(CUBINS, RECORDED):
        pytest.skip(reason)
    check(CUBINS)


# ---------------------------------------------------------------------- that the check can fail
@pytest.mark.parametrize(("left_out", "risen"), [
    ("loop-fuse", {"kernels", "launches", "bytes moved", "arena bytes", "operations: loop"}),
    ("loop-deduplicate-kernels", {"kernels", "operations: block"}),
    ("loop-join-online", {"kernels", "launches", "bytes moved"}),
])
def test_a_planted_regression_is_found(left_out: str, risen: set[str]) -> None:
    """A pass that is left out, as if it found nothing to do any more."""
    setting = replace(SM_90, passes=f"default,without({left_out})")
    counted = {"transformer": count(transformer(), setting)}
    section = SECTIONS[1]
    recorded = RECORDED.sections[section.title]["transformer"]
    lines = changes(section, counted, Table(RECORDED.versions, {
        section.title: {"transformer": recorded}}))
    rose = {match[1] for line in lines if (match := re.search(r", transformer: (.*) rose ", line))}
    fell = {match[1] for line in lines if (match := re.search(r", transformer: (.*) fell ", line))}
    assert rose >= risen
    assert f"rewrites: {left_out}" in fell


def test_instructions_that_are_added_are_found() -> None:
    """What attention computes of its masks and scores is computed by loops of its own."""
    if reason := other_version(FIRST, RECORDED):
        pytest.skip(reason)
    setting = replace(AVX512, passes="default,without(loop-fuse)")
    lines = changes(FIRST, {"attention": count(attention(), setting)}, RECORDED)
    assert any(f", attention: {CODE}" in line and " rose from " in line for line in lines)


each_section = pytest.mark.parametrize("section", (*SECTIONS, CUBINS), ids=lambda s: s.title)


@each_section
def test_every_number_of_the_table_is_compared(section: Section) -> None:
    """One more or one less is told by its name, with both numbers."""
    recorded = RECORDED.sections[section.title]
    same = Table({section.tool: installed_versions().get(section.tool, "")}, RECORDED.sections)
    for subject, counts in recorded.items():
        for name, number in counts.items():
            for other, word in ((number + 1, "rose"), (number - 1, "fell")):
                counted = {**recorded, subject: counts | {name: other}}
                assert changes(section, counted, same) == [
                    f"{section.title}, {subject}: {name} {word} from {number} to {other}"]


@each_section
def test_code_of_other_versions_is_not_compared(section: Section) -> None:
    recorded = RECORDED.sections[section.title]
    other = Table({section.tool: "1.2"}, RECORDED.sections)
    assert f"is counted with {section.tool} 1.2, and" in other_version(section, other)
    more = {s: {name: n + 1 for name, n in counts.items()} for s, counts in recorded.items()}
    lines = changes(section, more, other)
    assert not any(CODE in line for line in lines)
    assert len(lines) == sum(CODE not in name for c in recorded.values() for name in c)


def test_what_is_not_in_the_table_and_what_is_gone_are_told() -> None:
    counted = {"new": {"kernels": 3}}
    lines = changes(FIRST, counted, RECORDED)
    assert f"{FIRST.title}, new: kernels rose from 0 to 3" in lines
    assert f"{FIRST.title}, cnn: kernels fell from 14 to 0" in lines


def test_the_message_names_what_rose_first_and_the_command() -> None:
    lines = complaint(["a: x fell from 2 to 1", "a: y rose from 2 to 3"]).splitlines()
    assert lines[0] == "2 counts differ from counts/table.md:"
    assert lines[1:3] == ["a: y rose from 2 to 3", "a: x fell from 2 to 1"]
    assert "python -m tests.counts --write" in lines[-1] and "says why" in lines[-1]


def test_the_table_reads_as_it_was_written() -> None:
    assert table_text(RECORDED) == TABLE.read_text()
    assert [*RECORDED.sections] == [s.title for s in (*SECTIONS, CUBINS)]
    assert len(MODELS) == 10 and len(KERNELS) == 12


# ---------------------------------------------------------------------- nothing else changes it
_ELSEWHERE = """
import os
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
from tests.counts.count import AVX512, SM_90, count
from tests.counts.models import quantized
print([count(quantized(), setting) for setting in (AVX512, SM_90)])
"""


def test_counts_are_the_same_on_one_core_and_with_other_hashes() -> None:
    done = processes.run(
        [sys.executable, "-c", _ELSEWHERE], check=True, capture_output=True, text=True, cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "4711", "PYTHONPATH": str(ROOT)})
    assert done.stdout.strip() == str([count(quantized(), s) for s in (AVX512, SM_90)])


def test_no_fact_of_this_machine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another processor, with other caches and cores, yields the same counts."""
    expected = RECORDED.sections[FIRST.title]["groups"]
    other = replace(SERVER, cpu="znver4", caches=(4 << 10, 64 << 10, 1 << 20), cores=3)
    monkeypatch.setattr(facts, "_host", lambda: other)
    monkeypatch.setattr(facts, "assumed_features", lambda: None)
    lines = changes(FIRST, {**RECORDED.sections[FIRST.title],
                            "groups": count(groups(), AVX512)}, RECORDED)
    assert expected and not lines


# ---------------------------------------------------------------------- assembly
def test_loops_of_assembly() -> None:
    """The outer loop's own instructions do not count; a block that ends the inner one does."""
    text = """
kernel:
\t.cfi_startproc
\tpushq\t%rbx
.LBB0_1:                                # =>This Loop Header: Depth=1
                                        #     Child Loop BB0_2 Depth 2
\txorl\t%eax, %eax
.LBB0_2:                                #   Parent Loop BB0_1 Depth=1
                                        # =>  This Inner Loop Header: Depth=2
\tvmovups\t(%rsp), %ymm0                # 32-byte Reload
\tjle\t.LBB0_4
# %bb.3:                                #   in Loop: Header=BB0_2 Depth=2
\t# a comment
\tjmp\t.LBB0_2
.LBB0_4:                                #   in Loop: Header=BB0_1 Depth=1
\tmovq\t%rax, 8(%rsp)                   # 8-byte Spill
\tjmp\t.LBB0_1
"""
    assert innermost_loops(text) == Loops(count=1, instructions=3, spills=1)
