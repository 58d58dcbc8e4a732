"""Each node tells the line of the user's code and the module it is from, at every door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

import compiler
from compiler.frontend.onnx.origin import origin_of

torch: Any = pytest.importorskip("torch")

HERE = Path(__file__)


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        scores = self.query(x) @ self.key(x).transpose(-1, -2)  # the scores
        return torch.softmax(scores, -1) @ x  # the mixture


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict({"attention": Attention()}) for _ in range(2))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = x + layer["attention"](x)  # the residual
        return x


def line_with(text: str) -> int:
    return next(k for k, line in enumerate(HERE.read_text().splitlines(), 1)
                if line.endswith(f"# {text}"))


def doors(module: Any, x: Any) -> dict[str, Any]:
    """The explanations of a module as it is given, compiled, and exported."""
    return {"module": lambda: compiler.explain(module, x),
            "compiled": lambda: compiler.explain(torch.compile(module, backend="strata"), x),
            "exported": lambda: compiler.explain(torch.export.export(module, (x,)))}


@pytest.mark.parametrize("door", ["module", "compiled", "exported"])
def test_nodes_tell_their_module_and_their_line(door: str) -> None:
    module, x = Encoder().eval(), torch.randn(2, 3, 8)
    [graph] = doors(module, x)[door]().graphs
    nodes = [n for n in graph.nodes if n.source]
    assert len(nodes) >= 12 and len(nodes) >= 0.99 * len(graph.nodes)
    assert all(str(HERE) in n.source for n in nodes)
    scopes = {n.scope for n in nodes}
    assert {f"layers.{k}.attention" for k in range(2)} <= scopes, scopes
    assert {f"layers.{k}.attention.query" for k in range(2)} <= scopes
    for text, op, count in (("the scores", "matmul", 2), ("the mixture", "softmax", 2),
                            ("the residual", "add", 2)):
        told = [n for n in nodes if f":{line_with(text)} in forward: " in n.source]
        assert len([n for n in told if op in n.name]) >= count, text


def test_a_profile_takes_an_exported_program() -> None:
    module, x = Encoder().eval(), torch.randn(2, 3, 8)
    found = compiler.profile(torch.export.export(module, (x,)), x, threads=1)
    assert found.launches and all(launch.nodes for launch in found.launches)


def node(name: str, **properties: str) -> Any:
    made = onnx.helper.make_node("Add", ["a", "b"], ["c"], name=name)
    for key, value in properties.items():
        made.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    return made


@pytest.mark.parametrize(("name", "properties", "scope", "line"), [
    ("/encoder/layer.3/attention/Add", {}, "encoder.layer.3.attention", ""),
    ("Add_3", {}, "", ""), ("", {}, "", ""), ("//Add", {}, "", ""),
    ("add", {"name_scopes": "['', 'layers.0', 'layers.0.norm', 'add']"}, "layers.0.norm", ""),
    ("add", {"name_scopes": "['', 'add']"}, "", ""), ("add", {"name_scopes": "[broken"}, "", ""),
    ("/a/Add", {"name_scopes": "17", "stack_trace": 'File "/m/net.py", line 7, in forward\n'
                                                    "    x + y"}, "a",
     "/m/net.py:7 in forward: x + y")])
def test_nodes_of_onnx_tell_what_their_file_tells(
    name: str, properties: dict[str, str], scope: str, line: str
) -> None:
    assert origin_of(node(name, **properties), name) == (scope, line)


def test_no_source_is_made_up() -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Exp", ["x"], ["y"], name="/part/Exp")], "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3])])
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    [found] = compiler.explain(model).graphs
    assert [(n.scope, n.source) for n in found.nodes] == [("part", "")]
