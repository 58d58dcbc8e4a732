"""`explain`: what it says of kernels, pairs and nodes, as text and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from xdsl.ir import Block, Region

from compiler.explaining import report
from compiler.explaining.collect import JOINED, Explanation
from compiler.explaining.neighbours import pairs_around
from compiler.explaining.pairs import PARTS, Launched, Link, Links, waits_between
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.block import KernelOp
from passes.analyses.loop.grouping import APART
from passes.analyses.loop.refusals import MIN_ROWS
from passes.reasons import Kind, legality, price
from tests.cli.conftest import Run
from tests.counts import models
from tests.filecheck import filecheck
from tests.models.onnx_graph import OnnxGraph
from tests.models.test_shared_layers import SHARED, UNSHARED, after, model


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explain") / "network.onnx"
    onnx.save(models.cnn().model, path)
    return path


def explained(strata: Run, model: Path, *words: str) -> dict[str, Any]:
    done = strata("explain", model, "--features", "avx2", "--json", "-", *words)
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_the_text_is_grouped_and_counted(strata: Run, network: Path) -> None:
    done = strata("explain", network, "--features", "avx2")
    assert done.status == 0, done.err
    filecheck("""
        // CHECK: network for cpu: 21 nodes,
        // CHECK: kernels
        // CHECK: contract_0: Conv_0, Relu_1
        // CHECK: schedule by the target's rules: <grid
        // CHECK: not fused
        // CHECK: a contraction starts a kernel
        // CHECK: fused
        // CHECK: nodes without a kernel
        // CHECK: alias of
        // CHECK: memory
        // CHECK: arena""", done.out)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_json_has_the_fixed_keys(strata: Run, network: Path, target: str) -> None:
    done = strata("explain", network, "--target", target, "--json", "found.json",
                  *(["--features", "sm_90"] if target == "cuda" else []))
    assert done.status == 0, done.err
    found = json.loads(Path("found.json").read_text())
    kernels = {k["name"]: k for k in found["kernels"]}
    for node in found["nodes"]:
        assert node.keys() >= {"name", "op", "kernels", "gone"}
        assert (node["gone"] is None) == bool(node["kernels"])
        assert {*node["kernels"]} <= kernels.keys()
        assert all(node["name"] in kernels[k]["nodes"] for k in node["kernels"])
    for kernel in kernels.values():
        assert kernel.keys() >= {"name", "nodes", "bytes", "flops", "schedule"}
        assert kernel["bytes"] > 0 and kernel["flops"] >= 0
    for pair in found["pairs"]:
        assert pair.keys() == {"from", "to", "fused", "reason", "kind", "group",
                               "pass"} and pair["reason"]
        assert (pair["kind"] is None) if pair["fused"] else (pair["kind"] in get_args(Kind))
        assert pair["fused"] or {pair["from"], pair["to"]} <= kernels.keys()


def test_convolution_and_batch_norm_are_one_kernel(strata: Run, network: Path) -> None:
    found = explained(strata, network)
    kernels = {n["name"]: n["kernels"] for n in found["nodes"]}
    [norm] = [n for n in kernels if n.startswith("BatchNormalization")]
    [pair] = [p for p in found["pairs"] if p["fused"] and p["to"] == norm]
    assert "batch_norm_of_conv" in pair["reason"]
    assert kernels[pair["from"]] == kernels[norm]


def test_flops_and_bytes_are_those_of_the_operators(strata: Run, tmp_path: Path) -> None:
    """A product of 5x7 by 7x3: 2*5*7*3 FLOPs; 4 * (35 + 21 + 15) bytes."""
    (tmp_path / "m.mlir").write_text("""builtin.module {
      strata.func @main(%a: f32[5, 7], %b: f32[7, 3]) -> (f32[5, 3]) inputs ["a", "b"]
          outputs ["y"] {
        %y = graph.matmul %a, %b : f32[5, 3] loc("product")
        strata.return %y
      }
    }""")
    found = explained(strata, tmp_path / "m.mlir")
    assert sum(k["flops"] for k in found["kernels"]) == 2 * 5 * 7 * 3
    assert any(k["bytes"] == 4 * (35 + 21 + 15) for k in found["kernels"])
    assert found["nodes"][0]["name"] == "product" and found["nodes"][0]["kernels"]


def test_one_node_and_one_kernel(strata: Run, network: Path) -> None:
    done = strata("explain", network, "--features", "avx2", "--node", "Conv_0")
    filecheck("""// CHECK: Conv_0: Conv
                 // CHECK: graph: graph.conv
                 // CHECK: loop:
                 // CHECK: block:
                 // CHECK: contract_0
                 // CHECK: Conv_0 -> Relu_1: fused""", done.out)
    gone = strata("explain", network, "--features", "avx2", "--node", "map")
    assert "no kernel computes it: alias of 'Sigmoid_17'" in gone.out
    done = strata("explain", network, "--features", "avx2", "--kernel", "contract_0")
    assert "contract_0: Conv_0, Relu_1" in done.out


def test_a_node_has_a_reason_for_each_neighbour(strata: Run, network: Path) -> None:
    """Nodes that read it or that it reads, views between them passed over: fused or not, and why.
    """
    found = explained(strata, network)
    kernels = {n["name"]: {*n["kernels"]} for n in found["nodes"]}
    graph = onnx.load(network).graph
    made = {name: n.name or f"{n.op_type}_{k}" for k, n in enumerate(graph.node)
            for name in n.output}
    edges = {(made[name], made[n.output[0]]) for n in graph.node for name in n.input
             if name in made}
    apart = [(a, b) for a, b in edges if kernels.get(a) and kernels.get(b)
             and not kernels[a] & kernels[b]]
    assert apart
    for first, second in apart:
        for node in (first, second):
            done = strata("explain", network, "--features", "avx2", "--node", node)
            assert re.search(rf"^  {first} -> {second}: not fused: (legality|price|rule): .+ "
                             r"\(\w+ -> \w+\) \[[\w, -]+\]$", done.out, re.MULTILINE), done.out


def test_views_are_passed_over(strata: Run, tmp_path: Path) -> None:
    g = OnnxGraph({})
    x = g.input("x", np.float32, [4, 64, 64])
    first = g.node("MatMul", x, g.random_weight(64, 64))
    second = g.node("Reshape", first, g.integers(8, 32, 64))
    y = g.node("MatMul", second, g.random_weight(64, 48))
    onnx.save(g.model({"y": y}), tmp_path / "m.onnx")
    done = strata("explain", tmp_path / "m.onnx", "--node", "MatMul_0")
    assert "\n  MatMul_0 -> MatMul_2: not fused: " in done.out, done.out


@pytest.mark.parametrize("strategy", ["whole-graph", "per-op"])
def test_launches_of_one_kernel_are_not_fused(
    strata: Run, tmp_path: Path, strategy: str
) -> None:
    """Equal kernels are one, which two nodes share without being fused."""
    g = OnnxGraph({})
    first = g.node("MatMul", g.input("x", np.float32, [64, 64]), g.random_weight(64, 64))
    second = g.node("MatMul", first, g.random_weight(64, 64))
    y = g.node("Relu", g.node("Relu", second))
    onnx.save(g.model({"y": y}), tmp_path / "m.onnx")
    found = explained(strata, tmp_path / "m.onnx", "--strategy", strategy)
    kernels = {n["name"]: n["kernels"] for n in found["nodes"]}
    shared = kernels["MatMul_0"]
    if strategy == "per-op":
        assert kernels["MatMul_1"] == shared
    fused = [(p["from"], p["to"]) for p in found["pairs"] if p["fused"]]
    assert ("MatMul_0", "MatMul_1") not in fused
    [pair] = [p for p in found["pairs"] if p["from"] == shared[0]
              and p["to"] == kernels["MatMul_1"][0]]
    assert not pair["fused"] and pair["reason"]
    done = strata("explain", tmp_path / "m.onnx", "--strategy", strategy, "--node", "MatMul_1")
    assert re.search(r"\n  MatMul_0 -> MatMul_1: not fused: ", done.out), done.out


def test_reasons_have_kinds(strata: Run, network: Path) -> None:
    """A convolution reads other points; what joins refuse has the kind of their reason; operators
    that a strategy compiles apart are apart by a rule."""
    found = explained(strata, network)
    kinds = {p["reason"]: p["kind"] for p in found["pairs"] if not p["fused"]}
    assert {kinds[r] for r in kinds if r.startswith("it reads the producer's result")} == {
        "legality"}
    assert {kinds[r] for r in kinds if r.endswith("faster in parts")} <= {"price"}
    apart = [p for p in explained(strata, network, "--strategy", "per-op")["pairs"]
             if p["reason"] == APART.text]
    assert apart and all(p["kind"] == "rule" and not p["fused"] for p in apart)
    done = strata("explain", network, "--features", "avx2")
    assert re.search(r"^  \d+ x legality: it reads the producer's result at other points "
                     r"\[loop-outline\]: ", done.out, re.MULTILINE)


@pytest.mark.parametrize(("rows", "told"), [
    (2, ("price", f"too few rows: fewer than {MIN_ROWS}")), (64, None)])
def test_a_reason_names_the_limit(strata: Run, tmp_path: Path, rows: int, told: Any) -> None:
    """A maximum of rows reads a sum of rows; both are one kernel if there are enough of them."""
    g = OnnxGraph({})
    x = g.input("x", np.float32, [rows, 4096])
    total = g.node("ReduceSum", x, g.integers(1), keepdims=1)
    most = g.node("ReduceMax", g.node("Mul", x, total), axes=[1], keepdims=1)
    onnx.save(g.model({"y": most}), tmp_path / "m.onnx")
    found = explained(strata, tmp_path / "m.onnx")
    apart = [(p["kind"], p["reason"]) for p in found["pairs"] if not p["fused"]]
    assert (told in apart) if told else not apart


def test_parts_of_one_tensor(strata: Run, tmp_path: Path) -> None:
    """The second of two products that write a concatenation reads nothing of the first."""
    g = OnnxGraph({})
    parts = [g.node("MatMul", g.input(n, np.float32, [8, k]), g.random_weight(k, 16))
             for n, k in (("a", 32), ("b", 48))]
    onnx.save(g.model({"y": g.node("Concat", *parts, axis=1)}), tmp_path / "m.onnx")
    [pair] = [p for p in explained(strata, tmp_path / "m.onnx")["pairs"] if not p["fused"] and
              not p["from"].endswith("_pack0")]
    assert (pair["kind"], pair["reason"]) == (PARTS.kind, PARTS.text)


@pytest.mark.parametrize(("option", "kind", "name", "near"), [
    ("--node", "node or module", "conv_0", "Conv_0"),
    ("--kernel", "kernel", "contract0", "contract_0")])
def test_unknown_names_are_told_with_the_nearest(
    strata: Run, network: Path, option: str, kind: str, name: str, near: str
) -> None:
    done = strata("explain", network, "--features", "avx2", option, name)
    assert done.status == 1
    assert f"has no {kind} '{name}'" in done.err and near in done.err


def test_fused_neighbours_have_their_reason(strata: Run, layered: Path) -> None:
    """A rule, or as what the second joined the kernel of the first."""
    found = explained(strata, layered)
    [first, *_] = [p for p in found["pairs"] if p["fused"] and p["to"].endswith("Relu_1")]
    assert first["reason"].startswith(("an epilogue, on the elements", "inline_producers in"))
    assert not any(p["reason"].startswith(JOINED) for p in found["pairs"]
                   if p["to"].rpartition("/")[2].startswith("Relu"))


@pytest.mark.parametrize("passes", [SHARED, UNSHARED])
def test_pairs_of_all_equal_layers_have_reasons(passes: str) -> None:
    """Few have none of their own, whether layers are shared or not."""
    found = Explanation(target="cpu")
    Compiler(model(after, given=True), CompileOptions(
        "cpu", passes=passes, cache="off", tuned="off", threads=1, features="avx2"),
        [found]).lower()
    fused = [p for p in found.pairs if p.fused]
    assert fused and sum(p.reason.startswith(JOINED) for p in fused) < len(fused) // 4


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers: the names of the first one's nodes tell modules, PyTorch's scopes the other's."""
    g = OnnxGraph({})
    y = g.input("x", np.float32, [16, 32])
    for _ in range(2):
        y = g.node("Relu", g.node("MatMul", y, g.random_weight(32, 32)))
    made = g.model({"y": y})
    for node in made.graph.node[:2]:
        node.name = f"/encoder/layer.0/ffn/{node.name}"
    for node in made.graph.node[2:4]:
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(
            ["", "encoder", "encoder.layer.1", "encoder.layer.1.ffn", node.name]))
    path = tmp_path_factory.mktemp("explain") / "layered.onnx"
    onnx.save(made, path)
    return path


@pytest.mark.parametrize(("name", "count"), [
    ("encoder", 4), ("encoder.layer.0", 2), ("layer.1", 2), ("/encoder/layer.1/ffn", 2),
    ("encoder.layer", 4)])
def test_a_module(strata: Run, layered: Path, name: str, count: int) -> None:
    done = strata("explain", layered, "--features", "avx2", "--node", name, "--lines", "graph")
    filecheck(f"""// CHECK: {name}: a module of {count} nodes, in
                  // CHECK: graph: {f"{count // 2} x " if count > 2 else ""}graph.matmul
                  // CHECK: contract_
                  // CHECK: fused
                  // CHECK: @main
                  // CHECK: graph.max""", done.out)


@pytest.mark.parametrize(("name", "told"), [
    ("ffn", "has 2 modules 'ffn'"), ("layer.2", "did you mean encoder.layer"), ("/", "has no"),
    ("ayer.1", "has no node or module 'ayer.1'")])
def test_names_that_are_no_module(strata: Run, layered: Path, name: str, told: str) -> None:
    done = strata("explain", layered, "--features", "avx2", "--node", name)
    assert done.status == 1 and told in done.err


def test_an_unwritable_file_is_told_first(strata: Run, network: Path) -> None:
    done = strata("explain", network, "--json", "nowhere/found.json")
    assert done.status == 1 and "nowhere" in done.err


@pytest.mark.parametrize(("readers", "wanted"), [
    ({"a": ["b"]}, None), ({"a": ["b", "c"]}, None), ({"a": ["b", "c"], "c": ["b"]}, "c"),
    ({"a": ["b", "c"], "c": ["d"], "d": ["b"]}, "d"), ({"a": ["b", "c"], "c": ["a"]}, None),
    ({"a": ["b"], "b": ["a"]}, None)])
def test_launches_that_wait_for_each_other(
    readers: dict[str, list[str]], wanted: str | None
) -> None:
    """What b also needs, and a third launch computes from what a computes."""
    assert waits_between("a", "b", readers) == wanted


@pytest.mark.parametrize("level", ["graph", "loop", "host", "block", "llvm", "asm", "triton"])
def test_the_lines_of_a_node_and_of_a_kernel(strata: Run, network: Path, level: str) -> None:
    """A node's lines name its kernel; a kernel's lines are all of it."""
    target = ("--target", "cuda", "--features", "sm_90") if level == "triton" else (
        "--features", "avx2")
    done = strata("explain", network, *target, "--node", "Conv_0", "--lines", level)
    assert done.status == 0, done.err
    plain = strata("explain", network, *target, "--node", "Conv_0").out
    own = done.out.removeprefix(plain).splitlines()
    heads = [line for line in own if line.startswith("  @")]
    assert own and heads and all(re.fullmatch(r"  @.*, \d+ of \d+ lines", h) for h in heads)
    assert ("  @main" if level in ("graph", "loop", "host") else "contract_0") in "".join(heads)
    if level in ("graph", "loop", "host"):
        return
    kernel = strata("explain", network, *target, "--kernel", "contract_0", "--lines", level)
    start = next(k for k, line in enumerate(own) if line.startswith("  @contract_0,")) + 1
    end = next((k for k, line in enumerate(own) if k > start and line in heads), len(own))
    assert {*own[start:end]} - {"    ..."} <= {*kernel.out.splitlines()}


def test_lines_of_nothing(strata: Run, network: Path) -> None:
    done = strata("explain", network, "--lines", "llvm")
    assert done.status == 2 and "--lines needs --node or --kernel" in done.err
    done = strata("explain", network, "--node", "Conv_0", "--lines", "llvn")
    assert done.status != 0 and "llvn" in done.err and "Traceback" not in done.err


def test_each_use_of_a_node_has_its_own_reason(strata: Run, tmp_path: Path) -> None:
    """A skip connection: the convolution that reads a node reads windows of it; the addition waits
    for that convolution's kernel, whose nodes are named."""
    g = OnnxGraph({})
    y = g.input("x", np.float32, [1, 16, 14, 14])
    first = y = g.node("Relu", g.node("Conv", y, g.random_weight(16, 16, 3, 3), pads=[1] * 4))
    for _ in range(2):
        y = g.node("Sigmoid", g.node("Conv", y, g.random_weight(16, 16, 3, 3), pads=[1] * 4))
    onnx.save(g.model({"y": g.node("Add", y, first)}), tmp_path / "m.onnx")
    done = strata("explain", tmp_path / "m.onnx", "--features", "avx2", "--node", "Relu_1")
    own = dict(re.findall(r"^  Relu_1 -> (\w+): not fused: (.*)$", done.out, re.MULTILINE))
    assert own.keys() == {"Conv_2", "Add_6"}, done.out
    assert own["Conv_2"].startswith("legality: it reads the producer's result at other points (")
    assert re.match(r"legality: another input of it waits for that kernel "
                    r"\((Conv_[24]|Sigmoid_[35])\b", own["Add_6"]), own["Add_6"]


@pytest.mark.parametrize("passes", [SHARED, UNSHARED])
def test_pairs_of_a_node_are_those_of_its_edges(passes: str) -> None:
    """The first kernel of each pair computes the first node, and the second one the second."""
    found = Explanation(target="cpu")
    Compiler(model(after, given=True), CompileOptions(
        "cpu", passes=passes, cache="off", tuned="off", threads=1, features="avx2"),
        [found]).lower()
    kernels, count = {n.name: found.kernels_of(n) for n in found.nodes}, 0
    for node in found.nodes:
        for pair in (p for p in pairs_around(found, node.name) if not p.fused):
            ends = re.search(r" \((\w+) -> (\w+)\)$", pair.reason)
            assert ends and node.name in (pair.first, pair.second)
            assert ends[1] in kernels[pair.first] and ends[2] in kernels[pair.second]
            count += 1
    assert count > 10


def test_what_lies_between_is_named() -> None:
    """The operation, and the nodes that it comes from: here views, and calls of equal layers."""
    found = Explanation(target="cpu")
    Compiler(model(after, given=True), CompileOptions(
        "cpu", passes=SHARED, cache="off", tuned="off", threads=1, features="avx2"),
        [found]).lower()
    names, operations = {n.name for n in found.nodes}, set[str]()
    for pair in (p for p in found.pairs if "lies between" in p.reason):
        told = re.fullmatch(r"a (\w+\.\w+) lies between them \((.+)\)", pair.reason)
        assert told and {*re.sub(r" and \d+ more$", "", told[2]).split(", ")} <= names, pair
        assert pair.counted == f"legality: a {told[1]} lies between them [{pair.by}]"
        operations.add(told[1])
    assert operations == {"loop.view", "strata.call"}
    assert any(re.search(r" x legality: a strata.call lies between them \[\S+\]: \w+ -> \w+ \(",
                         line) for line in report.whole(found))


def test_reasons_are_of_the_launches_alone() -> None:
    """What passes said of operations whose nodes two launches have, if they did; not of others that
    share only some node with them. Joins decide last."""
    first, second = Launched("a", ("p", "q")), Launched("b", ("r", "s"))
    other, joined = legality("of others"), price("slower")
    link = Link(first, second, None)
    apart = {(("p", "x"), ("r",)): {"": other},
             (("q",), ("r", "s")): {"not joined": joined, "": legality("own")}}
    known = dict.fromkeys("ab", KernelOp.create(regions=[Region(Block())]))
    links = Links([link], apart, known)
    [pair] = links.pairs()
    assert (pair.kind, pair.reason) == ("price", "own; not joined: slower")
    [edge] = links.on_edge(["p"], ["a"], ["r"], ["b"])
    assert (edge.kind, edge.reason) == ("legality", "of others")
    [edge] = links.on_edge(["q"], ["a"], ["s"], ["b"])
    assert edge.reason == pair.reason
    assert not [*links.on_edge(["x"], ["a"], ["r"], ["b"])]
