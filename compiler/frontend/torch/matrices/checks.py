"""Checks of factors in exported programs: `_linalg_check_errors` raises where a matrix is singular.

    %r = with_effects(%token, aten._linalg_check_errors, %info, "linalg.solve", is_matrix = True)
    -->
    %c = aten._linalg_check_errors(%info, "linalg.solve", is_matrix = True)

PyTorch orders such checks by tokens, which the program takes and returns. A compiled program has
requirements instead, which need no order.
"""

from __future__ import annotations

from typing import Any

CHECK = "aten._linalg_check_errors.default"
_EFFECT = "with_effects"


def without_tokens(program: Any) -> Any:
    """An ExportedProgram without tokens, if it has no other effects. It is changed in place."""
    effects = [n for n in program.graph.nodes if getattr(n.target, "__name__", "") == _EFFECT]
    if not effects or any(str(node.args[1]) != CHECK for node in effects):
        return program
    graph, signature = program.graph, program.graph_signature
    for node in effects:
        token, op, *given = node.args
        with graph.inserting_before(node):
            graph.call_function(op, tuple(given), dict(node.kwargs))
        for item in list(node.users):
            item.replace_all_uses_with(token)
            graph.erase_node(item)
        graph.erase_node(node)
    output = graph.output_node()
    kept = [(spec, value) for spec, value in zip(
        signature.output_specs, output.args[0], strict=True) if spec.kind.name != "TOKEN"]
    output.args = (tuple(value for _, value in kept),)
    signature.output_specs[:] = [spec for spec, _ in kept]
    places = [n for n in graph.nodes if n.op == "placeholder"]
    for spec, node in list(zip(signature.input_specs, places, strict=True)):
        if spec.kind.name == "TOKEN":
            graph.erase_node(node)
            signature.input_specs.remove(spec)
    program.graph_module.recompile()
    return program
