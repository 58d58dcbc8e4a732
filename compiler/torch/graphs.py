"""Compiles a graph as a whole, or what can be compiled of it.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from compiler.diagnostics import StrataError
from compiler.faults import CompilerFault
from compiler.option_values import setting_of
from compiler.programs.notes import Note
from compiler.torch.identity import identity_of
from compiler.torch.messages.eager import OF_OWN, is_own, name_eager
from compiler.torch.parts import Run, in_parts, make_part


def compile_graph(graph: Any, weights: Mapping[str, Any], options: Mapping[str, Any]) -> Run:
    """Compile a graph as far as possible; the rest runs eagerly and is named in a warning.

    Unsupported nodes are only searched for if the import fails, since the search is an import,
    too. Later processes find them noted.
    """
    note = _note(graph, weights, options)
    known = None if note is None else note.find()
    if known is not None:
        return _around(graph, weights, options, dict(known))
    try:
        part = make_part(graph, weights, options)
        return graph.forward if part is None else part
    except (StrataError, CompilerFault) as error:
        return _compile_around(graph, weights, options, error, note)


def _note(graph: Any, weights: Mapping[str, Any], options: Mapping[str, Any]) -> Note | None:
    """Where it is noted which nodes of a graph cannot be imported, by name, and why."""
    identity = identity_of(graph, weights)
    if not identity or "plugins" in options or "dump_dir" in options:
        return None
    shown = repr(sorted(options.items(), key=lambda option: option[0]))
    return note_of(options, ["not imported", identity, shown])


def note_of(options: Mapping[str, Any], subject: Sequence[str]) -> Note:
    """The note on a subject in the cache of these options, which are as users spell them."""
    return Note(setting_of("cache", options.get("cache", "default")), subject)


def _compile_around(
    graph: Any, weights: Mapping[str, Any], options: Mapping[str, Any],
    error: StrataError | CompilerFault, note: Note | None,
) -> Run:
    """Compile the supported parts of a graph that cannot be compiled as a whole."""
    from compiler.frontend.torch.importer import find_bad

    try:
        bad = {} if isinstance(error, CompilerFault) else find_bad(
            graph, weights, _plugins(options))
    except StrataError as other:
        name_eager(["the whole graph"], str(other))
        return graph.forward
    if not bad:
        name_eager([n.name for n in graph.graph.nodes if n.op == "call_function"], str(error))
        return graph.forward
    reasons = {node.name: why for node, why in bad.items()}
    if note is not None:
        note.keep(reasons)
    return _around(graph, weights, options, reasons)


def _plugins(options: Mapping[str, Any]) -> tuple[ModuleType, ...]:
    """The modules whose importers count as ours."""
    from compiler.option_values import paths_of
    from compiler.plugins.plugin_files import load_plugins

    return tuple(load_plugins(paths_of("plugins", options.get("plugins", ()))).modules)


def _around(
    graph: Any, weights: Mapping[str, Any], options: Mapping[str, Any], bad: Mapping[str, str]
) -> Run:
    """Everything but the nodes of these names compiled."""
    own = [n for n in graph.graph.nodes if n.name in bad and is_own(n)]
    name_eager(list(bad), "; ".join(sorted(set(bad.values()))), OF_OWN if own else "")
    nodes = {n for n in graph.graph.nodes if n.name in bad}
    return in_parts(graph, nodes, weights, options)
