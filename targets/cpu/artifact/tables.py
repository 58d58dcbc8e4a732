"""A model's own part of its C source: sizes, names, tables, and functions over its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dialects.strata.array_type import ArrayType
from dialects.strata.assumptions import MAX_SIZE
from targets.cpu.artifact.binding import (
    Assumptions,
    binding_text,
    fixed_shape,
    shapes_text,
)
from targets.cpu.artifact.c_text import DTYPES, CExpressions, SharedExpressions, quoted
from targets.cpu.artifact.instructions import features_text
from targets.cpu.artifact.others import Other, others_text
from targets.cpu.artifact.ports import Parameters, Ports
from targets.cpu.runtime.heap import (
    CHECK_WORD,
    INTERRUPT_WORD,
    LIST_WORD,
    PYTHON_WORD,
    RAISED_WORD,
    RESULTS,
    SEEN_WORD,
)
from targets.cpu.runtime.plan import RunPlan
from targets.cpu.runtime.results import LARGE
from targets.cpu.runtime.threads import FIRST_ARGUMENT, SCHEDULER_ENTRY
from targets.host_checks import MOST_BYTES
from targets.library_file import WEIGHTS_MARK

WEIGHTS_HEAD = 64
"""The bytes before the constants in a file of weights: mark, size, identity, zeros."""
_HERE = Path(__file__).parent
_KINDS = {"size": "CHECK_SIZE", "assumption": "CHECK_ASSUMPTION", "index": "CHECK_INDEX",
          "access": "CHECK_ACCESS", "memory": "CHECK_MEMORY", "stack": "CHECK_STACK",
          "signal": "CHECK_SIGNAL", "divisor": "CHECK_DIVISOR"}
_INCLUDES = ("errno.h", "stdarg.h", "stdatomic.h", "stdio.h", "stdlib.h", "string.h", "time.h")
_POSIX = ("fcntl.h", "pthread.h", "sched.h", "signal.h", "sys/mman.h", "sys/stat.h", "unistd.h")
_HAS_POSIX = "!defined(__wasm__) && !defined(_WIN32)"


class Constants(NamedTuple):
    """Where a variant's constants are in those of the library, and how many bytes those have.

    `identity`: the hash of the file of weights; None if they are in a section. `sum`: the checksum
    of all bytes.
    """

    offsets: Sequence[int]
    size: int
    identity: bytes | None
    sum: int


class Source(NamedTuple):
    """What the source of one variant of a model says. `symbol`: where the constants are."""

    name: str
    variant: int
    version: str
    about: str
    ports: Ports
    constants: Constants
    symbol: str
    needs: Sequence[str]
    architecture: str
    entry: str = ""
    """What the names of the code's own functions start with, in code for another machine."""
    others: Sequence[Other] = ()
    """The other programs that this one asks first."""
    is_other: bool = False


class Runtime(NamedTuple):
    """The C that differs between kinds of code: threads, what a state is, states, and runs."""

    threads: Sequence[str]
    state: Sequence[str]
    states: Sequence[str]
    runs: Sequence[str]


def source_text(source: Source, runtime: Runtime | None = None) -> str:
    """The C source of a model: all that runs around its compiled code. `runtime`: of code that does
    not run on this machine's processor."""
    ports, own = source.ports, runtime or _of_processors(source)
    assumptions = Assumptions(ports.symbols)
    rows = [assumptions.row(f"assumed_{k}", a) for k, a in enumerate(ports.plan.assumptions)]
    functions = assumptions.taken()
    checks = _checks(ports.plan, assumptions)
    parts = [
        [f"/* {source.name}: what runs around its compiled code. Written by Strata. */"],
        _defines(source, assumptions.most), own.threads, [file_text("types.c")], own.state,
        _ports_text(ports, source.about), [file_text("checks.c")],
        binding_text(ports.plan.inputs, ports.symbols), functions,
        ["static const assumption assumptions[] = {", *(f"    {row}," for row in rows),
         "    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0},", "};"], checks, _sizes_text(ports),
        _constants_text(source.constants), [file_text("weights.c"), file_text("any_state.c")],
        others_text(ports, source.others), [file_text("others.c")], own.states,
        [file_text("arguments.c")], own.runs, [file_text("calls.c")],
        run_text(source.name, ports)]
    return "\n".join(line for part in parts for line in (*part, ""))


def _of_processors(source: Source) -> Runtime:
    return Runtime(_threads_text(), [file_text("state.c")], [
        *features_text(source.needs, source.architecture), "", file_text("states.c")],
        [file_text("runs.c")])


def _own_names(entry: str) -> list[str]:
    """The name of the code's entry, if it has another than code for this machine."""
    return [f"#define strata_entry {entry}_entry"] if entry else []


def _threads_text() -> list[str]:
    return [f"#if {_HAS_POSIX}", file_text("threads.c"), "#else", file_text("one_thread.c"),
            "#endif"]


def file_text(name: str) -> str:
    """The text of a file of C beside this one."""
    return (_HERE / name).read_text(encoding="utf-8")


def _defines(source: Source, symbols: int) -> list[str]:
    name, ports, constants = source.name, source.ports, source.constants
    plan = ports.plan
    late = [t for t, is_late in zip(ports.outputs, ports.late, strict=True) if is_late]
    numbers = {
        "INPUTS": len(plan.inputs), "OUTPUTS": len(ports.outputs),
        "GIVEN_OUTPUTS": len(plan.outputs), "CONSTANTS": len(constants.offsets),
        "SIZES": len(ports.symbols), "ENTRY_SIZES": len(plan.size_names), "STEPS": plan.steps,
        "POISONS": int(plan.poisons), "ASSUMPTIONS": len(plan.assumptions),
        "MOST_SYMBOLS": symbols, "FIRST_ARGUMENT": FIRST_ARGUMENT,
        "SCHEDULER_ENTRY": SCHEDULER_ENTRY, "HEAP_BLOCKS": LIST_WORD, "HEAP_CHECK": CHECK_WORD,
        "HEAP_SEEN": SEEN_WORD, "HEAP_INTERRUPT": INTERRUPT_WORD, "HEAP_PYTHON": PYTHON_WORD,
        "HEAP_RAISED": RAISED_WORD,
        "HEAP_RESULTS": RESULTS, "HEAP_WORDS": RESULTS + sum(1 + t.rank for t in late),
        "HAS_WEIGHTS_FILE": int(constants.identity is not None), "WEIGHTS_HEAD": WEIGHTS_HEAD,
        "OTHERS": len(source.others), "IS_OTHER": int(source.is_other),
        "LARGE": LARGE}  # the bytes from which code counts on whole lines
    return ["#define _GNU_SOURCE", *(f"#include <{file}>" for file in _INCLUDES),
            f"#if {_HAS_POSIX}", *(f"#include <{file}>" for file in _POSIX), "#endif",
            "#if defined(__linux__)", "#include <sys/syscall.h>", "#include <sys/auxv.h>",
            "#include <sys/prctl.h>", "#endif",
            "#if defined(_WIN32)", "#include <malloc.h>", "#endif", *_own_names(source.entry),
            "#if defined(__x86_64__)", "#include <cpuid.h>", "#endif", f'#include "{name}.h"', "",
            "#if defined(__GNUC__)", '#pragma GCC diagnostic ignored "-Wunused-function"',
            "#endif", f"#define STATE {name}_state", f"#define MODEL(name) {name}_##name",
            *(f"#define {key} {value}" for key, value in numbers.items()),
            f"#define MOST_SIZE INT64_C({MAX_SIZE})", f"#define MOST_BYTES INT64_C({MOST_BYTES})",
            f"#define STRATA_VERSION {quoted(source.version)}",
            f"#define VARIANT {source.variant}", f"#define CONSTANTS_SYMBOL {source.symbol}"]


def _ports_text(ports: Ports, about: str) -> list[str]:
    plan = ports.plan
    names = ", ".join([*(quoted(s.name) for s in ports.symbols), "0"])
    most = max(n for n, _, _ in DTYPES.values()) + 1
    numbered = {n: (element, size) for element, (n, _, size) in DTYPES.items()
                if element != "index"}
    dtypes = [numbered.get(k, ("any", 1)) for k in range(most)]
    return [*_rows("inputs", plan.input_names, plan.inputs),
            *_rows("outputs", plan.output_names, ports.outputs),
            f"static const char *const size_names[] = {{{names}}};",
            f"static const char about[] = {quoted(about)};",
            f"static const int64_t dtype_bytes[] = {{{', '.join(str(b) for _, b in dtypes)}}};",
            "static const char *const dtype_names[] = {"
            f"{', '.join(quoted(name) for name, _ in dtypes)}}};", "",
            "static const char *dtype_name(int32_t dtype) {",
            f'    return dtype < 0 || dtype >= {most} ? "an unknown dtype" : dtype_names[dtype];',
            "}"]


def _rows(what: str, names: Sequence[str], types: Sequence[ArrayType]) -> list[str]:
    rows = [f"    {{{quoted(name)}, {quoted(t.short)}, {DTYPES[t.element][0]}, {t.rank}, "
            f"{{{fixed_shape(t.shape)}}}}}," for name, t in zip(names, types, strict=True)]
    return [f"static const strata_port {what}[] = {{", *rows, "    {0, 0, 0, 0, {0}},", "};", ""]


def _checks(plan: RunPlan, assumptions: Assumptions) -> list[str]:
    before: list[str] = []
    rows: list[str] = []
    for k, check in enumerate(plan.checks):
        label, texts, about = check.label, "0, 0", "0"
        if check.kind == "access":
            lines = check.label.split("\n")
            label, texts = "", f"{len(lines)}, texts_{k}"
            before.append(f"static const char *const texts_{k}[] = "
                          f"{{{', '.join(map(quoted, lines))}}};")
        if check.assumption is not None:
            row = assumptions.row(f"checked_{k}", check.assumption)
            before += [*assumptions.taken(), f"static const assumption checked_{k} = {row};"]
            about = f"&checked_{k}"
        rows.append(f"    {{{_KINDS[check.kind]}, {quoted(check.node)}, {quoted(label)}, {about}, "
                    f"{texts}}},")
    return [*before, "static const check checks[] = {", *rows, "    {0, 0, 0, 0, 0, 0},", "};"]


def _sizes_text(ports: Ports) -> list[str]:
    """What is computed from the sizes of the inputs before a run."""
    plan, late = ports.plan, ports.late
    symbols = {s: f"n[{k}]" for k, s in enumerate(ports.symbols)}
    words: list[int] = []
    end = 0
    for type_, is_late in zip(ports.outputs, late, strict=True):
        words.append(end if is_late else -1)
        end += 1 + type_.rank if is_late else 0
    entry = ", ".join([*(str(ports.symbols.index(s)) if s in symbols else "-1"
                         for s in plan.size_names), "0"])
    shared = SharedExpressions(symbols)
    arena = shared.value(plan.arena_bytes)
    return [f"static const int32_t late_words[] = {{{', '.join(map(str, [*words, -1]))}}};",
            f"static const int32_t entry_sizes[] = {{{entry}}};", "",
            *shapes_text([t.shape for t in ports.outputs], late, symbols), "",
            "static int64_t arena_bytes(const int64_t *n) {", "    (void)n;",
            *shared.lines, f"    return {arena};", "}"]


def _constants_text(constants: Constants) -> list[str]:
    offsets = ", ".join(f"{offset}u" for offset in (*constants.offsets, 0))
    lines = [f"static const uint64_t constants[] = {{{offsets}}};",
             f"#define CONSTANTS_BYTES ((size_t)UINT64_C({constants.size}))",
             f"#define CONSTANTS_SUM UINT32_C({constants.sum})"]
    if constants.identity is not None:
        lines += [f"#define WEIGHTS_MARK {quoted(WEIGHTS_MARK.decode())}",
                  "static const unsigned char weights_identity[] = "
                  f"{{{', '.join(map(str, constants.identity))}}};"]
    return [*lines, "extern int32_t strata_entry(struct call *);"]


def run_text(name: str, ports: Ports) -> list[str]:
    """The typed function `run`, as a call with tensors."""
    given = Parameters.of(ports)
    symbols = {s: p.name for s, p in zip(ports.symbols, given.sizes, strict=True)}
    c = CExpressions(symbols)
    lines = [f"int {name}_run({', '.join([f'{name}_state *state', *given.declarations])}) {{",
             "    strata_tensor in[INPUTS + 1], out[OUTPUTS + 1];", "    int status;",
             "    (void)in, (void)out;"]
    for k, (parameter, type_) in enumerate(zip(given.inputs, ports.plan.inputs, strict=True)):
        shape = ", ".join(c.value(size) for size in type_.shape) or "0"
        lines.append(f"    in[{k}] = (strata_tensor){{(void *)(uintptr_t){parameter.name}, 0, "
                     f"{DTYPES[type_.element][0]}, {type_.rank}, {{{shape}}}}};")
    for k, parameter in enumerate(given.outputs):
        data = "NULL" if parameter.shape else parameter.name
        lines.append(f"    out[{k}] = (strata_tensor){{{data}, SIZE_MAX, 0, 0, {{0}}}};")
        wanted = " || ".join(f"{p} == NULL" for p in (parameter.name, parameter.shape) if p)
        lines.append(f"    if (state != NULL && ({wanted}))")
        lines.append("        return refuse(state, STRATA_BAD_ARGUMENT, "
                     f'"the output {parameter.name} is null");')
    lines.append(f"    status = {name}_call(state, in, INPUTS, out, OUTPUTS);")
    for k, parameter in enumerate(given.outputs):
        if parameter.shape and parameter.type is not None:
            lines += [f"    if (status == 0) *{parameter.name} = out[{k}].data;",
                      f"    if (status == 0) memcpy({parameter.shape}, out[{k}].shape, "
                      f"{parameter.type.rank} * sizeof(int64_t));"]
    return [*lines, "    return status;", "}"]
