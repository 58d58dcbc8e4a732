"""Other programs of a model in its library: code for some sizes, beside the one for all sizes.

Each is a model of its own, with functions of its own name. The state of the program for all sizes
holds theirs, asks them first (`others.c`), and so is the only one that callers see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from targets.cpu.artifact.ports import Ports

OPEN = "create_beside"
"""The function of another program that makes a state on constants that are open already."""
_ARRAYS = (", const strata_tensor *in, int32_t in_count, strata_tensor *out, int32_t out_count",
           ", in, in_count, out, out_count")
_FUNCTIONS = {
    "bind": ("int", *_ARRAYS), "shapes": ("int", *_ARRAYS), "run_bound": ("int", "", ""),
    "run_at": ("int", ", void *const *data", ", data"),
    "message": ("const char *", "", ""), "cancel": ("void", "", ""), "destroy": ("void", "", ""),
    "set_threads": ("int", ", int32_t threads", ", threads"),
    "set_signals": ("int64_t *", ", void *const *functions", ", functions")}
"""For each function of a state: its result, its parameters after the state, and their names."""


class Other(NamedTuple):
    """A program for some sizes: what its functions start with, these sizes, and its ports."""

    name: str
    sizes: Mapping[str, int]
    ports: Ports


def others_text(general: Ports, others: Sequence[Other]) -> list[str]:
    """Declarations of the other programs, and functions that find theirs by their number."""
    if not others:
        return []
    lines = [f'#include "{other.name}.h"' for other in others]
    for name in (other.name for other in others):
        lines.append(f"int {name}_{OPEN}(const strata_options *options, const unsigned char "
                     f"*weights, {name}_state **made);")
    lines += _create(others)
    for function, (result, parameters, names) in _FUNCTIONS.items():
        calls = [f"{o.name}_{function}(state{names})" for o in others]
        lines += _choice(f"{result} other_{function}(int32_t k, void *state{parameters})", calls,
                         "" if result == "void" else "return ")
    return [*lines, *_sizes(general, others)]


def _choice(header: str, calls: Sequence[str], returns: str) -> list[str]:
    cases = [f"    case {k}: {returns}{call};{'' if returns else ' return;'}"
             for k, call in enumerate(calls[1:], 1)]
    return ["", f"static {header} {{", "    switch (k) {", *cases,
            f"    default: {returns}{calls[0]};", "    }", "}"]


def _create(others: Sequence[Other]) -> list[str]:
    lines = ["", "static int other_create(int32_t k, const strata_options *options, "
             "const unsigned char *weights, void **made) {", "    int status = 0;"]
    for k, other in enumerate(others):
        own = f"own_{other.name}"
        lines += [f"    {other.name}_state *{own} = NULL;",
                  f"    if (k == {k}) status = {other.name}_{OPEN}(options, weights, &{own});",
                  f"    if (k == {k}) *made = {own};"]
    return [*lines, "    return status;", "}"]


def _sizes(general: Ports, others: Sequence[Other]) -> list[str]:
    """The sizes of the model as another program knows them: open in it, or fixed."""
    lines = ["", "static int64_t other_size(int32_t k, void *state, int32_t number) {",
             "    (void)state;", "    switch (k * SIZES + number) {"]
    for k, other in enumerate(others):
        known = {symbol.name: place for place, symbol in enumerate(other.ports.symbols)}
        for number, symbol in enumerate(general.symbols):
            if symbol.name in known:
                value = f"{other.name}_size(state, {known[symbol.name]})"
            else:
                value = str(other.sizes.get(symbol.name, -1))
            lines.append(f"    case {k} * SIZES + {number}: return {value};")
    return [*lines, "    default: return -1;", "    }", "}"]
