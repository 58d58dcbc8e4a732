"""The table of counts in `table.md`: written, read, and compared with what is counted now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from targets.cuda.errors import CudaError
from tests.counts.count import (
    AVX2,
    AVX512,
    CODE,
    SM_90,
    Counts,
    Setting,
    Subject,
    count,
    count_cubins,
)
from tests.counts.kernels import KERNELS
from tests.counts.machine import has_assembler, llvm_version
from tests.counts.models import MODELS
from tests.counts.open_sizes import relative_times
from tests.counts.predicted import predictions

TABLE = Path(__file__).with_name("table.md")
COMMAND = "python -m tests.counts --write"
Counted = dict[str, Counts]
"""By the name of the subject."""

HEAD = f"""# What compilation is counted by

A test compares these numbers with what the compiler makes now, and fails on each that differs. To
change them, run `{COMMAND}` and say in the commit why they rose. A number that
fell is recorded by the same command, so that it stays won.

- **launches**, **copies**: steps of the host's functions as they stand; the body of a loop counts
  once.
- **bytes moved**: the sizes of the buffers that these steps are given, added up.
- **operations**: of the whole module where a level ends.
- **rewrites**: operations that a pass makes, changes or removes.
- **code**: instructions of the innermost loops in assembly, and what the kernels of a GPU need.
- **predictions**: of the time on a GPU that nobody needs to have (`targets/cuda/prediction`): the
  launches of a kernel and of its copies, the KiB that memory moves, nanoseconds, and products
  (`block.dot`) in the text. They rank; they are no measurements.
- **open sizes**: the predicted time of a program for all sizes, in thousandths of that of a program
  for the size alone.

The CPU is a server of eight cores with 48 KiB, 2 MiB and 32 MiB of cache, wherever this runs.
"""


@dataclass(frozen=True)
class Section:
    """A part of the table: subjects side by side, compiled for one setting.

    `tool`: which compiler makes the code that is counted.
    """

    title: str
    subjects: Sequence[Callable[[], Subject]]
    setting: Setting
    counts: Callable[[Subject, Setting], Counts] = count
    tool: str = "LLVM"

    def counted(self) -> Counted:
        made = [make() for make in self.subjects]
        return {s.name: self.counts(s, self.setting) for s in made}


@dataclass(frozen=True)
class Predictions(Section):
    """What is predicted of kernels, one a line, in the place of what is counted."""

    def counted(self) -> Counted:
        return predictions()


@dataclass(frozen=True)
class OpenSizes(Section):
    """Predicted times of programs for all sizes, relative to those of programs for each size."""

    def counted(self) -> Counted:
        return relative_times()


SECTIONS = (
    Section("Models, cpu avx512", MODELS, AVX512),
    Section("Models, cuda sm_90", MODELS, SM_90),
    Section("Kernels, cpu avx512", KERNELS, AVX512),
    Section("Kernels, cpu avx2", KERNELS, AVX2),
    Section("Kernels, cuda sm_90", KERNELS, SM_90),
    Predictions("Predictions, cuda sm_90 (H100)", (), SM_90),
    OpenSizes("Open sizes, relative times, cuda sm_90 (H100)", (), SM_90),
)
CUBINS = Section("Cubins of kernels, sm_90", KERNELS, SM_90, count_cubins, "Triton")


@dataclass(frozen=True)
class Table:
    """`versions`: of the compilers of code. `sections`: by title."""

    versions: Mapping[str, str]
    sections: Mapping[str, Counted]


def installed_versions() -> dict[str, str]:
    """Of the compilers that make code here."""
    versions = {"LLVM": llvm_version()} if has_assembler() else {}
    try:
        return versions | {"Triton": version("triton")}
    except PackageNotFoundError:
        return versions


def other_version(section: Section, table: Table) -> str:
    """Why code is not comparable here; empty if it is."""
    here, recorded = installed_versions().get(section.tool, ""), table.versions[section.tool]
    if here == recorded:
        return ""
    there = f"is {here}" if here else "makes no such code"
    return (f"code is counted with {section.tool} {recorded}, and {section.tool} {there} here: "
            "its counts are not compared")


# ---------------------------------------------------------------------- comparison
def changes(section: Section, counted: Counted, table: Table) -> list[str]:
    """What differs from the table, a line each. Counts that neither has are 0."""
    recorded = table.sections.get(section.title, {})
    ignored = CODE if other_version(section, table) else "\0"
    return [line for subject in dict.fromkeys((*recorded, *counted))
            for line in _changes(f"{section.title}, {subject}", recorded.get(subject, {}),
                                 counted.get(subject, {})) if ignored not in line]


def _changes(where: str, before: Counts, after: Counts) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, 0), after.get(name, 0)
        if old != new:
            yield f"{where}: {name} {'rose' if new > old else 'fell'} from {old} to {new}"


def complaint(lines: Sequence[str]) -> str:
    """The message for what differs; what rose comes first."""
    ordered = sorted(lines, key=lambda line: " fell from " in line)
    return "\n".join([f"{len(lines)} counts differ from {TABLE.parent.name}/{TABLE.name}:",
                      *ordered,
                      f"`{COMMAND}` rewrites the table; do that in a commit that says why."])


# ---------------------------------------------------------------------- text
def counted_table() -> Table:
    """Counts everything. Raises CudaError where a compiler is missing."""
    versions = installed_versions()
    if missing := {"LLVM", "Triton"} - {*versions}:
        raise CudaError(f"the table needs code of {' and '.join(sorted(missing))}, on x86-64 Linux")
    return Table(versions, {s.title: s.counted() for s in (*SECTIONS, CUBINS)})


def read_table(text: str) -> Table:
    versions: dict[str, str] = {}
    sections: dict[str, Counted] = {}
    for part in text.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        rows = [[cell.strip() for cell in line.strip("|").split("|")]
                for line in body.splitlines() if line.startswith("|")]
        if title == "Versions":
            versions = {tool: number for tool, number in rows[2:]}
        else:
            sections[title] = {
                subject: {row[0]: int(row[column]) for row in rows[2:]}
                for column, subject in enumerate(rows[0][1:], 1)}
    return Table(versions, sections)


def table_text(table: Table) -> str:
    versions = [[tool, number] for tool, number in table.versions.items()]
    parts = [HEAD, "## Versions\n", *_grid([["compiler", "version"], *versions])]
    for title, counted in table.sections.items():
        names = dict.fromkeys(name for counts in counted.values() for name in counts)
        rows = [[name, *(str(c.get(name, 0)) for c in counted.values())] for name in names]
        kept = [row for row in rows if {*row[1:]} != {"0"}]
        parts += [f"\n## {title}\n", *_grid([["count", *counted], *kept])]
    return "\n".join([*parts, ""])


def _grid(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table, its columns aligned; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
    for row in (rows[0], rule, *rows[1:]):
        first, *others = row
        cells = [first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]
        yield f"| {' | '.join(cells)} |"
