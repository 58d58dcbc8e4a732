"""`torch.compile(model, backend="strata")`."""

from __future__ import annotations

import copy
import logging
from math import prod
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import compiler
from compiler.frontend import MemoryModel
from compiler.frontend.torch.captured_graph import CapturedGraph
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.torch import backend as torch_backend
from compiler.torch import parts
from compiler.torch.backend import Program, strata
from compiler.torch.parts import Part
from compiler.torch.results import Bindings, Results
from compiler.torch.weights import Weights
from dialects.block import StoreOp
from targets.cuda.planning.plan import plan_host
from targets.cuda.runtime.memory.donation import donated, with_donations
from targets.cuda.runtime.planned import Copy, Launch
from tests.pytorch.operators.foreign import foreign, stranger

NO_CACHE = {"threads": 1, "cache": "off"}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(model: nn.Module, **more: object) -> nn.Module:
    return torch.compile(model.eval(), backend=strata, options=NO_CACHE, **more)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.out = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.conv(x)).relu().mean((2, 3))).softmax(-1)


def test_inference_at_several_sizes(caplog: pytest.LogCaptureFixture) -> None:
    model = Net()
    fast = compiled(model)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "strata"):
        for batch in (2, 3, 4, 7):
            x = torch.randn(batch, 3, 8, 8)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-5, atol=1e-5)
    assert not caplog.records


def test_the_entry_point_names_the_backend() -> None:
    from importlib.metadata import entry_points

    found = [e for e in entry_points(group="torch_dynamo_backends") if e.name == "strata"]
    if not found:
        pytest.skip("Strata is not installed")
    assert found[0].load() is strata


def test_graph_breaks() -> None:
    class Breaks(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.conv(x)
            torch._dynamo.graph_break()
            return self.norm(y).sum((2, 3)) * len(x)

    model = Breaks().eval()
    with torch.no_grad():
        x = torch.randn(2, 3, 8, 8)
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=1e-4, atol=1e-4)


def test_unsupported_parts_run_eagerly_and_are_named(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.out(x).T.exp()
            q = stranger(y @ y.T)
            return foreign(q).sin() + y[:, :1]

    model = Odd().eval()
    with torch.no_grad(), caplog.at_level(logging.WARNING, "strata"):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=1e-4, atol=1e-4)
    assert "2 nodes run eagerly" in caplog.text
    assert all(f"strata_tests.{name}.default" in caplog.text for name in ("foreign", "stranger"))


class Cached(nn.Module):
    """Attends to rows that earlier calls have left in a static cache, as a decoder does."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = torch.zeros(1, 6, 4)
        self.count = torch.zeros(1, dtype=torch.int64)
        for state in (self.keys, self.count):
            torch._dynamo.mark_static_address(state)
        self.out = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(1, self.count, self.out(x))
        self.count.add_(1)
        return (x @ self.keys.transpose(1, 2)).softmax(-1) @ self.keys


def test_what_calls_change_is_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compiled once, and what it leaves behind is what eager calls leave."""
    made: list[object] = []
    real = compiler.compile
    monkeypatch.setattr(parts, "compile_model", lambda *a, **k: made.append(a) or real(*a, **k))
    model = Cached()
    other = copy.deepcopy(model)
    fast = compiled(model)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(1, 1, 4)
            torch.testing.assert_close(fast(x), other(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.keys, other.keys, rtol=1e-5, atol=1e-5)
    assert model.count.item() == 4 and len(made) == 1


def test_of_a_cache_on_cuda_one_slice_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cache that is read is given up for the one that is returned."""
    models: list[MemoryModel] = []
    real = compiler.compile
    monkeypatch.setattr(parts, "compile_model", lambda m, **k: models.append(m) or real(m, **k))
    with torch.no_grad():
        compiled(Cached())(torch.randn(1, 1, 4))
    options = CompileOptions(target="cuda", features="sm_90", tuned="off")
    plan = plan_host(Compiler(models[0], options).lower().module)
    [given], [output] = ([k for k, type_ in enumerate(types) if type_.short.endswith("[1, 6, 4]")]
                         for types in (plan.inputs, plan.outputs))
    assert donated(plan, {output: given}) == {output: given}
    steps = with_donations(plan, {output: given})
    [writer] = [s for s in steps if any(s.places[k].memory == given for k in s.written)]
    assert isinstance(writer, Launch) and not any(isinstance(s, Copy) for s in steps)
    kernel = writer.kernel.operation  # another branch of it counts
    places = [kernel.body.block.args[k] for k in writer.written if writer.places[k].memory == given]
    [store] = [op for op in kernel.walk() if isinstance(op, StoreOp) and op.buffer in places]
    assert prod(store.value.type.shape) == 4


@pytest.mark.gpu
def test_a_cache_on_the_device() -> None:
    """Calls follow each other without a pause: graphs, whose kernels begin before others end."""
    model = Cached().cuda()
    model.keys, model.count = model.keys.cuda(), model.count.cuda()
    for state in (model.keys, model.count):
        torch._dynamo.mark_static_address(state)
    other = copy.deepcopy(model)
    fast = torch.compile(model.eval(), backend=strata, options={"cache": "off"})
    inputs = [torch.randn(1, 1, 4, device="cuda") for _ in range(6)]
    with torch.no_grad():
        mine = [fast(x) for x in inputs]
        for x, y in zip(inputs, mine, strict=True):
            torch.testing.assert_close(y, other(x), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(model.keys, other.keys, rtol=1e-3, atol=1e-3)
    assert model.count.item() == 6


def test_changed_weights_are_seen() -> None:
    model = Net()
    fast = compiled(model)
    with torch.no_grad():
        x = torch.randn(2, 3, 8, 8)
        fast(x)
        model.out.weight.mul_(2)
        model.norm.running_mean.add_(0.5)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-5, atol=1e-5)


def test_inputs_that_are_written() -> None:
    class Cache(nn.Module):
        def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
            cache[:, 1] = x
            return cache.sum(1)

    model, x = Cache(), torch.randn(2, 3)
    fast, mine, theirs = compiled(model), torch.zeros(2, 4, 3), torch.zeros(2, 4, 3)
    with torch.no_grad():
        torch.testing.assert_close(fast(x, mine), model(x, theirs))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("inference", [False, True])
def test_what_compiled_code_has_written_counts_as_written(inference: bool) -> None:
    """Other compiled graphs, for which it is a weight, see that it has changed."""
    with torch.inference_mode(inference):
        x, state, other = (torch.full((2,), k) for k in range(3))
        weights = Weights.of([], []) if inference else Weights.of([x, state, other], [1])
        versions = [None if v.is_inference() else v._version for v in (x, state, other)]
        program = Program(None, {}, [1, 2], (Weights.of([], []),
                                             lambda x, state, other: (x, state, x)))
        assert program(x, state, other)[0] is x
        assert other.tolist() == [0, 0] and state.tolist() == [1, 1]
        if not inference:
            assert [v._version - n for v, n in zip(
                (x, state, other), versions, strict=True)] == [0, 1, 1]
            assert not weights.are_in([x, state, other])
            assert Weights.of([x], [0]).are_in([x])
            assert not Weights.of([x], [0]).are_in([x.clone()])


def test_code_for_old_weights_never_answers_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread calls while one compiles for weights that have changed."""
    weight, meanwhile = nn.Parameter(torch.ones(2)), list[float]()

    def compile_graph(graph: object, fixed: dict[str, torch.Tensor], options: object) -> object:
        [value] = {float(v[0]) for v in fixed.values()}
        if value == 2 and not meanwhile:
            meanwhile.append(0)
            meanwhile[0] = program(weight)[0]
        return lambda *_: [value]

    monkeypatch.setattr(torch_backend, "compile_graph", compile_graph)
    nodes = [SimpleNamespace(op="placeholder", name="w", target="w", args=(), kwargs={}, meta={})]
    program = Program(SimpleNamespace(graph=SimpleNamespace(nodes=nodes), forward=None), {})
    with torch.no_grad():
        assert program(weight) == [1]
        weight.add_(1)
        assert program(weight) == [2] and meanwhile == [2]


def test_a_part_asks_to_write_its_last_results_into_arguments() -> None:
    asked: list[dict[int, int]] = []
    executable = SimpleNamespace(loaded=SimpleNamespace(donate=asked.append))
    tensor = torch.zeros(2)
    results = Results([tensor, 7, tensor, tensor], [0, 2, 3], Bindings([], [0, 2, 3], []))
    part = Part(CapturedGraph(None, {}, []), executable, [0, 2, 3], results, False, False)
    part.write_to([1, 3])  # argument 1 is a weight
    part.write_to([])
    assert asked == [{2: 2}, {}]


def test_half_precision_and_integers() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(9, 8)

        def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            x = nn.functional.layer_norm(self.table(ids) * scale, (8,))
            return nn.functional.scaled_dot_product_attention(x, x, x)

    model = Mixed().bfloat16()
    ids, scale = torch.randint(9, (2, 5)), torch.rand(8).bfloat16()
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(ids, scale), model(ids, scale), rtol=3e-2,
                                   atol=3e-2)


# ---------------------------------------------------------------------- modes
def test_a_mode_is_the_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STRATA_CACHE", str(tmp_path))
    modes: list[str] = []
    monkeypatch.setattr("compiler.modes.prepared",
                        lambda mode, _, options, __: modes.append(mode) or options)
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)
    fast = torch.compile(model, backend=strata, mode="max-autotune")
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-5, atol=1e-5)
    assert modes == ["max-autotune"]


def test_a_mode_that_there_is_not() -> None:
    wrong = torch.compile(Net().eval(), backend=strata, mode="fastest")
    with torch.no_grad(), pytest.raises(Exception, match="no mode 'fastest'; there are: default"):
        wrong(torch.randn(2, 3, 8, 8))


@pytest.mark.parametrize(("options", "said"), [
    ({"cashe": "off"}, "no option 'cashe'.*did you mean 'cache'"),
    ({"target": "cpuu"}, "cpuu.*did you mean cpu"), ({"threads": -1}, "threads"),
    ({"precision": "f23"}, "precision.*'f23'"), ({"exact": "yes"}, "exact")])
def test_options_that_cannot_be_used(options: dict[str, object], said: str) -> None:
    """They are no reason to run eagerly."""
    wrong = torch.compile(lambda x: x * 3, backend=strata, options=options)
    with pytest.raises(Exception, match=f"(?s){said}"):
        wrong(torch.ones(3))


def test_each_graph_dumps_into_a_folder_of_its_own(tmp_path: Path) -> None:
    """With a break in the model, and again for other shapes."""
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.exp()
            torch._dynamo.graph_break()
            return y.sin()

    model = torch.compile(Broken().eval(), backend=strata, dynamic=False, options={
        "target": "reference", "dump_dir": str(tmp_path / "dumps")})
    with torch.no_grad():
        for size in (3, 5):
            model(torch.ones(size))
    folders = sorted((tmp_path / "dumps").iterdir())
    assert [f.name for f in folders] == [f"graph-{k}" for k in range(4)]
    texts = [(f / "00-graph-import.mlir").read_text() for f in folders]
    assert ["graph.exp" in t for t in texts] == [True, False, True, False]
    assert ["f32[5]" in t for t in texts] == [False, False, True, True]
