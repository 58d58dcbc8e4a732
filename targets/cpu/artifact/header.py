"""A model's header, in plain C."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dialects.strata.array_type import ArrayType
from targets.cpu.artifact.c_text import DTYPES, comment, identifier
from targets.cpu.artifact.ports import Parameters, Ports

_API = Path(__file__).parent / "api.h"
_DTYPES_PLACE = "@DTYPES@"


def header_text(
    name: str, version: str, ports: Ports, weights: str | None, more: Sequence[str] = ()
) -> str:
    """`name.h`. `weights`: the name of the file of weights, if there is one. `more`: declarations
    of functions that this kind of code has besides, with MODEL for the name."""
    plan, given = ports.plan, Parameters.of(ports)
    guard = f"STRATA_MODEL_{name}_H"
    lines = [
        f"/* {name}: a model compiled by Strata {version}. Link with -lm -lpthread.", "",
        *_columns("inputs", plan.input_names, plan.inputs),
        *_columns("outputs", plan.output_names, ports.outputs),
        *([f"   sizes: {comment(', '.join(s.name for s in ports.symbols))}"]
          if ports.symbols else []),
        *([f"   weights: in the file {comment(weights)}, whose path strata_options names"]
          if weights else []),
        "", "   Functions return a strata_status. There is no global state: several states may run",
        "   at the same time, each in one thread at a time. */", f"#ifndef {guard}",
        f"#define {guard}", "", _api_text(), "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
        *_functions(name), *(line.replace("MODEL", name) for line in more), "",
        *_run_declaration(name, given), "", "#ifdef __cplusplus", "}",
        "#endif", f"#endif /* {guard} */", ""]
    return "\n".join(lines)


def _api_text() -> str:
    rows = [f"    STRATA_{identifier(element).upper()} = {number}"
            for element, (number, _, _) in DTYPES.items() if element != "index"]
    return _API.read_text(encoding="utf-8").replace(_DTYPES_PLACE, ",\n".join(rows))


def _columns(what: str, names: Sequence[str], types: Sequence[ArrayType]) -> list[str]:
    return [f"   {what}:", *(f"     {comment(name)}: {comment(type_.short)}"
                             for name, type_ in zip(names, types, strict=True))]


def _functions(name: str) -> list[str]:
    return [line.replace("MODEL", name) for line in _FUNCTIONS.splitlines()]


_FUNCTIONS = """\
typedef struct MODEL_state MODEL_state;

/* Questions: Strata's version, what the model was made of (JSON), inputs, outputs, open sizes. */
const char *MODEL_version(void);
const char *MODEL_about(void);
int32_t MODEL_input_count(void);
int32_t MODEL_output_count(void);
int32_t MODEL_size_count(void);
const strata_port *MODEL_input(int32_t number);
const strata_port *MODEL_output(int32_t number);
const char *MODEL_size_name(int32_t number);

/* A state is what a call writes: intermediate values, threads, messages. `options` may be null. */
int MODEL_create(const strata_options *options, MODEL_state **state);
void MODEL_destroy(MODEL_state *state);
int MODEL_set_threads(MODEL_state *state, int32_t threads);

/* The text of a status, and details about the last error of a state. */
const char *MODEL_error_text(int status);
const char *MODEL_message(const MODEL_state *state);

/* Run the model on arrays of any sizes that it accepts. Of each output, dtype, rank, shape and, if
   it was null, data are set. */
int MODEL_call(MODEL_state *state, const strata_tensor *inputs, int32_t input_count,
    strata_tensor *outputs, int32_t output_count);

/* Ask for the outputs' shapes and bytes without a run. If only a run knows them, sizes are -1 and
   the bytes SIZE_MAX. The data of inputs are not read. */
int MODEL_shapes(MODEL_state *state, const strata_tensor *inputs, int32_t input_count,
    strata_tensor *outputs, int32_t output_count);

/* The same in two steps: check and bind arrays once, and run as often as wanted on their memory.
   `outputs` must live as long as they are bound; `size` asks for an open size after `bind`.
   `run_at` runs on other memory, of the same shapes: the addresses of inputs, then of outputs. */
int MODEL_bind(MODEL_state *state, const strata_tensor *inputs, int32_t input_count,
    strata_tensor *outputs, int32_t output_count);
int MODEL_run_bound(MODEL_state *state);
int MODEL_run_at(MODEL_state *state, void *const *data);
int64_t MODEL_size(const MODEL_state *state, int32_t number);

/* From another thread: end the current run at the next iteration of a loop. */
void MODEL_cancel(MODEL_state *state);

/* For interpreters: functions that loops call instead, to take the interpreter's lock, run handlers
   of signals, fetch what one has raised into three words (which this returns), release the lock. */
int64_t *MODEL_set_signals(MODEL_state *state, void *const *functions);"""


def _run_declaration(name: str, given: Parameters) -> list[str]:
    late = [p.name for p in given.outputs if p.shape]
    note = ["/* Run the model: open sizes, inputs, outputs, all in its order.",
            *([f"   {', '.join(late)}: memory of the state, valid until its next call."]
              if late else [])]
    parameters = [f"{name}_state *state", *given.declarations]
    indent = ",\n" + " " * (len(name) + 9)
    return [*note[:-1], note[-1] + " */", f"int {name}_run({indent.join(parameters)});"]
