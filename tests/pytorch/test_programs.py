"""Programs as a whole: sizes, weights, mutations, element types, provenance, errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import ImportedModel, load_model
from compiler.frontend.torch import in_memory
from compiler.frontend.torch.core.decompose import is_plain
from compiler.frontend.torch.ops import importers
from dialects.text.syntax import location_name
from tests.pytorch.operators.foreign import foreign, stranger
from tests.pytorch.programs import Function, check_outputs, export, run


def graph_of(program: object) -> ImportedModel:
    model = in_memory(program)
    assert model is not None
    return load_model(model)


# ---------------------------------------------------------------------- sizes
class Attention(nn.Module):
    """Heads split and merged by sizes that the model computes."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = self.project(x).view(batch, tokens, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        y = nn.functional.scaled_dot_product_attention(q, k, v, mask)
        return y.transpose(1, 2).reshape(batch * tokens, -1) / tokens


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_one_compiled_model_runs_at_several_sizes(target: str) -> None:
    model = Attention()
    program = export(model, [torch.randn(2, 5, 8)], {"x": {0: Dim("batch"), 1: Dim("tokens")}})
    executable = compiler.compile(program, target=target, cache="off", threads=1)
    assert executable.input_types == ["f32[batch, tokens, 8]"]
    assert executable.output_types == ["f32[batch*tokens, 8]"]
    for shape in ((2, 5, 8), (3, 7, 8)):
        x = torch.randn(shape)
        check_outputs(executable(x), model(x))


def test_a_size_has_its_range() -> None:
    program = export(Attention(), [torch.randn(2, 5, 8)], {"x": {0: Dim("batch", min=2, max=4)}})
    executable = compiler.compile(program, target="cpu", cache="off", threads=1)
    with pytest.raises(ValueError, match="batch <= 4"):
        executable(torch.randn(5, 5, 8))


def test_sizes_can_be_fixed() -> None:
    dynamic = {"x": {0: Dim("batch"), 1: Dim("tokens")}}
    program = export(Attention(), [torch.randn(2, 5, 8)], dynamic)
    by_dim = compiler.compile(program, target="reference", dims={"batch": 3})
    assert by_dim.input_types == ["f32[3, tokens, 8]"]
    by_shape = compiler.compile(program, target="reference", shapes={"x": ("n", 6, 8)})
    assert by_shape.input_types == ["f32[n, 6, 8]"]


@pytest.mark.parametrize(("options", "message"), [
    ({"dims": {"width": 3}}, "not a size of the model"),
    ({"shapes": {"y": (1, 2)}}, "not an input of the model"),
    ({"shapes": {"x": (2, 5, 9)}}, "but it is 8"),
    ({"shapes": {"x": (2, 5)}}, "the model has 3"),
    ({"dims": {"batch": 9}}, "batch is 9, but the model was exported for 0 to 8"),
    ({"dims": {"batch": -1}}, "batch"),
])
def test_options_that_do_not_fit(options: dict[str, object], message: str) -> None:
    program = export(Attention(), [torch.randn(2, 5, 8)], {"x": {0: Dim("batch", max=8)}})
    with pytest.raises(StrataError, match=message):
        compiler.compile(program, target="reference", **options)  # type: ignore[arg-type]


def test_arithmetic_of_sizes_leaves_no_operations() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        return torch.nn.functional.pad(x.new_zeros(n // 2 + 1, 2), (1, 2)) + (n % 3)

    program = export(halves, [torch.randn(8, 4)], ({0: Dim("n", min=4)},))
    text = str(graph_of(program).module)
    assert "n floordiv 2" in text and "n mod 3" in text and "graph.floor" not in text
    for n in (8, 13):
        x = torch.randn(n, 4)
        check_outputs(run(program, [x]), halves(x))


# ---------------------------------------------------------------------- weights
class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Parameter(torch.randn(8, 6).t())
        self.register_buffer("table", torch.randn(6, 8).bfloat16())
        self.register_buffer("flags", torch.tensor([True, False] * 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.shared + x @ self.table.float()) * self.flags + torch.tensor([1.5])


def test_weights_of_any_layout_and_type() -> None:
    model, x = Weights(), torch.randn(3, 6)
    check_outputs(run(export(model, [x]), [x], "cpu"), model(x))


def test_weights_are_not_copied() -> None:
    model = nn.Linear(64, 64)
    found = graph_of(export(model, [torch.randn(2, 64)])).weights.arrays.values()
    own = {model.weight.data_ptr(), model.bias.data_ptr()}
    assert {a.ctypes.data for a in found} == own


# ---------------------------------------------------------------------- mutation
class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        y = x.clone()
        y[:, 1] = self.count[1]
        y[0].mul_(2)
        return y


def test_mutations_are_made_functional_and_new_buffers_dropped() -> None:
    x = torch.randn(2, 3)
    program = export(Counter(), [x])
    check_outputs(run(program, [x]), Counter()(x))


def test_an_input_that_is_written_is_refused() -> None:
    program = export(lambda x: x.add_(1).sum(), [torch.randn(2, 3)])
    with pytest.raises(StrataError, match="writes into its input"):
        run(program, [torch.randn(2, 3)])


# ---------------------------------------------------------------------- structure
def _and_its_view(x: torch.Tensor) -> torch.Tensor:
    row = x[0]
    return x.mul_(2) + row


def _twice(x: torch.Tensor) -> torch.Tensor:
    y = x.add_(1)
    return x + y


def _often(x: torch.Tensor, times: int) -> torch.Tensor:
    for _ in range(times):
        x = x.add_(1)
    return x


@pytest.mark.parametrize(("function", "plain"), [
    (lambda x: torch.relu(x) @ x.t(), True),
    (lambda x: x.clone().add_(1), True),
    (lambda x: (x @ x.t()).relu_().mul_(2) + x.sum(), True),
    (lambda x: _and_its_view(x.clone()), False),
    (lambda x: _twice(x.clone()), True),
    (lambda x: x.clone().add_(x.double()), False),
    (lambda x: _often(x.clone(), 16), True),
    (lambda x: _often(x.clone(), 17), False),
    (lambda x: sum(x.split(2, 1)), True),
    (lambda x: torch.addcmul(x, x, x), False)])
def test_only_what_needs_it_is_decomposed(
    function: Callable[..., torch.Tensor], plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that writes nothing, of operators that are imported as they are, is read as it is.
    """
    x = torch.randn(3, 4)
    program = export(function, [x])
    assert is_plain(program, importers()) == plain
    if plain:
        monkeypatch.setattr(type(program), "run_decompositions", None)
    torch.testing.assert_close(run(program, [x])[0], function(x))


def test_what_may_share_memory_is_traced() -> None:
    """Dropout, which does nothing here, returns its operand."""
    program = export(lambda x: torch.dropout(x * 2, 0.5, False).relu_(), [torch.randn(3, 4)])
    assert not is_plain(program, importers())


def test_outputs_in_any_structure() -> None:
    def several(x: torch.Tensor) -> object:
        return {"a": x + 1, "b": (x, None, [x + 1, 3])}

    x = torch.randn(2, 3)
    check_outputs(run(export(several, [x]), [x], "cpu"), [x + 1, x, x + 1])


def test_regions_without_gradients_are_inlined() -> None:
    class Frozen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                y = x.sin()
            return y + x

    model, x = Frozen(), torch.randn(2, 3)
    program = torch.export.export(model, (x,))
    check_outputs(run(program, [x]), model(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_other_floats(dtype: torch.dtype, target: str) -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    model = model.to(dtype)
    x = torch.randn(3, 16).to(dtype)
    check_outputs(run(export(model, [x]), [x], target), model(x).detach())


def test_composites_stay_whole() -> None:
    class Composites(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.norm = nn.Embedding(9, 8), nn.LayerNorm(8)
            self.conv = nn.Conv1d(8, 8, 3, padding=1)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.norm(self.table(ids))
            x = nn.functional.scaled_dot_product_attention(x, x, x)
            return self.conv(nn.functional.gelu(x).mT)

    module = graph_of(export(Composites(), [torch.randint(9, (2, 5))])).module
    names = {op.name.removeprefix("graph.") for op in module.walk()}
    assert {"gather", "layer_norm", "softmax", "matmul", "gelu", "conv"} <= names
    assert not {"erf", "exp", "reduce_mean", "sqrt"} & names


def test_operations_carry_module_and_node() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    module = graph_of(export(Outer(), [torch.randn(2, 4)])).module
    places = {location_name(op) for op in module.walk() if op.name == "graph.relu"}
    assert places == {"inner.1/relu"}


# ---------------------------------------------------------------------- errors
class Unsupported(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = foreign(x)
        z = foreign(y)
        return stranger(z)


def test_all_unsupported_operators_are_listed_with_their_lines() -> None:
    program = export(Unsupported(), [torch.randn(3, 3)])
    with pytest.raises(StrataError) as caught:
        run(program, [torch.randn(3, 3)])
    text = str(caught.value)
    assert "2 problems" in text
    assert "operator strata_tests.foreign.default is not supported (2 uses: " in text
    assert f"{Path(__file__).name}:" in text and "y = foreign(x)" in text
    assert "strata_tests.stranger.default" in text and "return stranger(z)" in text


def test_sizes_that_depend_on_data() -> None:
    def pick(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].sum()

    program = export(pick, [torch.randn(3)])
    for numbers, total in (([1.0, -2.0, 3.0], 4.0), ([-1.0, -2.0, -3.0], 0.0)):
        assert run(program, [torch.tensor(numbers)])[0].item() == total


def test_an_object_that_is_no_model() -> None:
    with pytest.raises(StrataError, match="Linear is a module, and needs example inputs"):
        compiler.compile(nn.Linear(2, 2))


def test_numpy_inputs_give_numpy_outputs() -> None:
    model = Function(lambda x: x * 2)
    x = np.ones((2, 3), np.float32)
    [y] = compiler.compile(export(model, [torch.from_numpy(x)]), target="cpu", threads=1).run([x])
    assert isinstance(y, np.ndarray) and (y == 2).all()
