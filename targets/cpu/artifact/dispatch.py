"""A library with several variants of a model, of which a state is the best that the processor has.

Every variant is a model of its own, with functions of its own name. A state starts with the number
of its variant, by which the functions of the library find those of the variant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from targets.cpu.artifact.ports import Parameters, Ports

_ARRAYS = ("const strata_tensor *inputs, int32_t input_count, strata_tensor *outputs, "
           "int32_t output_count", "inputs, input_count, outputs, output_count")
_OF_STATES = {
    "set_threads": ("int", "int32_t threads", "threads", "STRATA_BAD_ARGUMENT"),
    "call": ("int", *_ARRAYS, "STRATA_BAD_ARGUMENT"),
    "shapes": ("int", *_ARRAYS, "STRATA_BAD_ARGUMENT"),
    "bind": ("int", *_ARRAYS, "STRATA_BAD_ARGUMENT"),
    "run_bound": ("int", "", "", "STRATA_BAD_ARGUMENT"),
    "run_at": ("int", "void *const *data", "data", "STRATA_BAD_ARGUMENT"),
    "set_signals": ("int64_t *", "void *const *functions", "functions", "NULL"),
    "cancel": ("void", "", "", ""), "destroy": ("void", "", "", "")}
"""For each function of a state: result, further parameters, their names, result without a state."""
_OF_CONST_STATES = {"message": ("const char *", "", "", '""'),
                    "size": ("int64_t", "int32_t number", "number", "-1")}
_OF_MODELS = {
    "version": ("const char *", "void", ""), "about": ("const char *", "void", ""),
    "error_text": ("const char *", "int status", "status"),
    **{f"{what}_count": ("int32_t", "void", "") for what in ("input", "output", "size")},
    **{what: ("const strata_port *", "int32_t number", "number") for what in ("input", "output")},
    "size_name": ("const char *", "int32_t number", "number")}
"""The functions that are the same for all variants: result, parameters, and their names."""


def variant_names(name: str, count: int) -> list[str]:
    """What the functions of each variant start with."""
    return [name] if count == 1 else [f"{name}_v{k}" for k in range(count)]


def dispatch_text(
    name: str, variants: Sequence[str], ports: Ports,
    more: Mapping[str, tuple[str, str, str, str]] = MappingProxyType({}),
) -> str:
    """The C source of the functions that choose; the last variant is the best. `more`: functions of
    states that this kind of code has besides."""
    given = Parameters.of(ports)
    passed = ", ".join(p for group in given for one in group for p in (one.name, one.shape) if p)
    run = ("int", ", ".join(given.declarations), passed, "STRATA_BAD_ARGUMENT")
    lines = [f"/* {name}: chooses the variant of the model. Written by Strata. */",
             *(f'#include "{each}.h"' for each in (name, *variants)), "",
             "static int variant(const void *state) { return *(const int32_t *)state; }", "",
             *_create(name, variants)]
    for function, (result, parameters, names) in _OF_MODELS.items():
        lines.append(f"{result} {name}_{function}({parameters}) "
                     f"{{ return {variants[0]}_{function}({names}); }}")
    for function, about in {**_OF_STATES, **more, "run": run}.items():
        lines += _forward(name, variants, function, "", *about)
    for function, about in _OF_CONST_STATES.items():
        lines += _forward(name, variants, function, "const ", *about)
    return "\n".join([*lines, ""])


def _create(name: str, variants: Sequence[str]) -> list[str]:
    lines = [f"int {name}_create(const strata_options *options, {name}_state **state) {{",
             "    int status;", "    if (state == NULL) return STRATA_BAD_ARGUMENT;",
             "    *state = NULL;"]
    for variant in reversed(variants):
        own = f"own_{variant}"
        lines += [f"    {variant}_state *{own} = NULL;",
                  f"    status = {variant}_create(options, &{own});",
                  f"    if (status == STRATA_OK) *state = ({name}_state *)(void *){own};",
                  "    if (status != STRATA_NO_PROCESSOR) return status;"]
    return [*lines, "    return STRATA_NO_PROCESSOR;", "}", ""]


def _forward(
    name: str, variants: Sequence[str], function: str, const: str, result: str, parameters: str,
    names: str, without: str,
) -> list[str]:
    """A function that calls that of the state's variant."""
    returns, more = "" if result == "void" else "return ", f", {names}" if names else ""
    calls = [f"{returns}{variant}_{function}(({const}{variant}_state *)({const}void *)state{more});"
             + ("" if returns else " return;") for variant in variants]
    cases = [f"    case {k}: {call}" for k, call in enumerate(calls[1:], 1)]
    header = f"{result} {name}_{function}({const}{name}_state *state"
    return ["", f"{header}{', ' + parameters if parameters else ''}) {{",
            f"    if (state == NULL) return{' ' + without if without else ''};",
            "    switch (variant(state)) {", *cases, f"    default: {calls[0]}", "    }", "}"]


# ---------------------------------------------------------------------- a folder of all pieces
def makefile_text(name: str, variants: Sequence[str], inside: bool) -> str:
    """A Makefile that makes the libraries of a folder again."""
    constants = f" {name}_constants.o" if inside else ""
    parts = [f"{variant}_variant.o" for variant in variants]
    chooses = ["dispatch.o"] if name not in variants else []
    lines = [
        "# Makes the libraries again, for instance with another compiler or with sanitizers.",
        "CFLAGS ?= -O2", f"OBJECTS = {name}_code.o{constants}", "",
        f"main: main.c {name}.a",
        f"\t$(CC) -std=c11 -Wall $(CFLAGS) -o $@ main.c {name}.a -lm -lpthread",
        f"{name}.a: $(OBJECTS)", "\tar rcsD $@ $(OBJECTS)", f"{name}.so: $(OBJECTS)",
        "\t$(CC) -shared -Wl,-z,noexecstack -Wl,-Bsymbolic -o $@ $(OBJECTS) -lm -lpthread",
        f"{name}_code.o: {' '.join([*parts, *chooses])}", "\tld -r -o $@ $^",
        "\tobjcopy --keep-global-symbols=visible $@"]
    for variant in variants:
        lines += [f"{variant}_variant.o: {variant}.c {variant}.h {variant}_kernels.o",
                  f"\t$(CC) -c -fPIC -std=gnu11 $(CFLAGS) -o {variant}_runtime.o {variant}.c",
                  f"\tld -r -o $@ {variant}_kernels.o {variant}_runtime.o",
                  f"\tobjcopy --keep-global-symbols={variant}_visible $@"]
    lines += [f"dispatch.o: {name}.c", f"\t$(CC) -c -fPIC $(CFLAGS) -o $@ {name}.c"] if (
        chooses) else []
    lines += [f"{name}_constants.o: {name}_constants.S {name}_constants.bin",
              f"\t$(CC) -c -fPIC -o $@ {name}_constants.S"] if inside else []
    return "\n".join([*lines, ""])
