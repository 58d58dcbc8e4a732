"""`compiler.profile` of a program of `torch.compile` times what that would run: all parts of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.profiling import measure
from compiler.profiling.roofline import Roofline
from compiler.torch.inspected.recorded import recorded
from dialects.strata.types import Array

torch: Any = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few runs, and a roofline that is not measured: no test looks at the figures."""
    monkeypatch.setattr(measure, "profile_model", partial(measure.profile_model, seconds=0.01))
    monkeypatch.setattr(measure, "measured", lambda options, narrow: Roofline(1e11, 1e10))


def chain(x: Any) -> Any:
    return torch.relu(torch.sin(x) + torch.cos(x))


def broken(x: Any) -> Any:
    x = chain(x)
    torch._dynamo.graph_break()
    return torch.exp(x) * 2


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(7, 5), torch.nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        return self.second(torch.nn.functional.gelu(self.first(x)))


def fast(program: Any, **options: Any) -> Any:
    return torch.compile(program, backend="strata", options=options)


def launches(found: Any) -> list[int]:
    return [len(part.result.launches) for part in found.parts]


def stages(found: Any) -> list[str]:
    return [part.stage for part in found.parts]


def test_the_options_of_the_program_are_used_unless_arguments_say_otherwise() -> None:
    x = torch.randn(7, 5)
    assert launches(compiler.profile(fast(chain), x)) == [1]
    per_op = fast(chain, strategy="per-op")
    assert launches(compiler.profile(per_op, x)) == [4]
    assert launches(compiler.profile(per_op, x, strategy="whole-graph")) == [1]


def test_the_mode_of_the_program_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[str] = []
    monkeypatch.setattr("compiler.modes._tune", lambda model, options, named: tuned.append(named))
    program = torch.compile(chain, backend="strata", mode="max-autotune")
    assert launches(compiler.profile(program, torch.randn(7, 5))) == [1] and len(tuned) == 1
    assert launches(compiler.profile(program, torch.randn(7, 5), mode="default")) == [1]
    assert len(tuned) == 1
    with pytest.raises(compiler.StrataError, match="no mode"):
        compiler.profile(program, torch.randn(7, 5), mode="fastest")


@pytest.mark.parametrize("door", [compiler.profile, compiler.explain])
def test_exported_programs_take_a_mode(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[str] = []
    monkeypatch.setattr("compiler.modes._tune", lambda model, options, named: tuned.append(named))
    x = torch.randn(7, 5)
    exported = torch.export.export(Net().eval(), (torch.randn(4, 7),))
    for mode in ("default", "reduce-overhead", "max-autotune"):
        assert door(exported, torch.randn(4, 7), mode=mode).lines()
    assert tuned == ["auto"]
    with pytest.raises(compiler.StrataError, match="no mode"):
        door(exported, x, mode="fastest")


def test_all_graphs_of_a_program_are_profiled() -> None:
    found = compiler.profile(fast(broken), torch.randn(7, 5))
    assert stages(found) == ["inference"] * 2 and found.captured == 2 == len(found.parts)
    [end] = found.breaks
    assert "graph_break" in end.place
    text = str(found)
    assert "part 1, inference" in text and "part 2, inference" in text and str(end) in text
    assert [part["called"] for part in found.json["parts"]] == [1, 1]
    assert found.wall_ms == pytest.approx(sum(p.result.wall_ms for p in found.parts))
    processes = {event["pid"] for event in found.trace["traceEvents"]}
    assert processes == {0, 1}


def test_nodes_that_run_eagerly_are_named() -> None:
    def program(x: Any) -> Any:
        return torch.poisson(torch.exp(x)) * 2

    found = compiler.profile(fast(program), torch.randn(7, 5))
    assert len(found.parts) == 2
    [(nodes, _)] = found.eager
    assert nodes == ("poisson",)
    assert any("runs eagerly: poisson" in line for line in found.lines())


def test_a_graph_that_is_called_again_is_timed_once() -> None:
    def program(x: Any) -> Any:
        for _ in range(3):
            torch._dynamo.graph_break()
            x = inner(x)
        return x

    def inner(x: Any) -> Any:
        return chain(x) * 2

    found = compiler.profile(fast(program), torch.randn(7, 5))
    assert sum(part.called for part in found.parts) == 3
    assert found.wall_ms == pytest.approx(
        sum(p.called * p.result.wall_ms for p in found.parts))


def closed(net: Any) -> Callable[[Any], Any]:
    return lambda x: net(x).sum()


@pytest.mark.parametrize("kind", ["module", "function", "inputs", "no leaf"])
def test_training_is_profiled_forward_and_backward(kind: str) -> None:
    net, x = Net(), torch.randn(4, 7)
    program = closed(net) if kind == "function" else net
    if kind in ("inputs", "no leaf"):
        net.eval().requires_grad_(False)
        x.requires_grad_()
    given = x * 2 if kind == "no leaf" else x
    found = compiler.profile(fast(program), given)
    assert stages(found) == ["forward", "backward"] and min(launches(found)) > 0
    assert x.grad is None and all(p.grad is None for p in net.parameters())
    if kind == "no leaf":
        given.sum().backward()  # the caller's graph is not freed


def test_explanations_tell_forward_from_backward() -> None:
    net, x = Net(), torch.randn(4, 7)
    found = compiler.explain(fast(net), x)
    assert found.stages == found.json["stages"] == ["forward", "backward"]
    assert {"forward graph:", "backward graph:"} <= {*str(found).splitlines()}
    assert all(p.grad is None for p in net.parameters())
    assert compiler.explain(net.eval(), x).stages == ["inference"]


def test_inference_is_profiled_without_gradients() -> None:
    net, x = Net(), torch.randn(4, 7)
    with torch.no_grad():
        assert stages(compiler.profile(fast(net), x)) == ["inference"]
    assert stages(compiler.profile(fast(net.eval()), x)) == ["inference"]


def test_a_program_that_calls_backward_itself() -> None:
    net = Net()

    def step(x: Any) -> Any:
        loss = (net(x) ** 2).sum()
        loss.backward()
        return loss

    found = compiler.profile(fast(step), torch.randn(4, 7))
    assert stages(found) == ["forward", "backward"]
    assert compiler.explain(fast(step), torch.randn(4, 7)).stages == ["forward", "backward"]


def test_a_module_that_is_compiled_in_place() -> None:
    net = Net().eval()
    net.compile(backend="strata", options={"strategy": "per-op"})
    [count] = launches(compiler.profile(net, torch.randn(4, 7)))
    [whole] = launches(compiler.profile(net, torch.randn(4, 7), strategy="whole-graph"))
    assert count > whole


def test_programs_can_be_profiled_any_number_of_times() -> None:
    program = fast(chain)
    for _ in range(12):  # more than PyTorch compiles a function by default
        assert launches(compiler.profile(program, torch.randn(3, 5))) == [1]


def test_parts_are_timed_with_the_inputs_that_the_program_gives_them(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[Array]] = []

    def profile_model(model: Any, options: Any, inputs_of: Any) -> Any:
        given.append(inputs_of(None))
        raise compiler.StrataError("enough")

    monkeypatch.setattr(measure, "profile_model", profile_model)
    x = torch.randn(7, 5)
    with pytest.raises(compiler.StrataError, match="enough"):
        compiler.profile(fast(broken), x)
    [[first]] = given
    np.testing.assert_array_equal(first, x.numpy())


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64", "int64", "bool"])
def test_inputs_of_every_kind(dtype: str) -> None:
    def program(x: Any) -> Any:
        return x * 2 + 1

    x = torch.ones(3, 5).to(getattr(torch, dtype)).T
    assert launches(compiler.profile(fast(program), x)) == [1]


@pytest.mark.parametrize("dynamic", [True, None])
def test_open_sizes_stay_open(dynamic: bool | None) -> None:
    def program(x: Any) -> Any:
        return torch.exp(x) * 2

    compiled = torch.compile(program, backend="strata", dynamic=dynamic)
    if dynamic is None:
        for rows in (3, 4):  # after which PyTorch leaves the size open
            compiled(torch.randn(rows, 5))
    [part] = recorded(compiled, [torch.randn(7, 5)], {}).parts
    assert part.executable.signature.symbols()
    assert launches(compiler.profile(compiled, torch.randn(7, 5))) == [1]


def test_compiled_programs_outside_of_the_graphs_are_never_parts() -> None:
    layer = fast(torch.nn.Linear(5, 5))

    def program(x: Any) -> Any:
        for _ in range(2):
            torch._dynamo.graph_break()
            x = layer(x)
        return x

    with torch.no_grad():
        for _ in range(2):  # whether the layer has been compiled before or not
            with pytest.raises(compiler.StrataError, match="by themselves"):
                compiler.profile(fast(program), torch.randn(2, 5))


def test_nothing_to_profile_says_why() -> None:
    def program(x: Any) -> Any:
        return torch.poisson(x)

    with pytest.raises(compiler.StrataError, match=r"nothing to profile.*\n.*poisson"):
        compiler.profile(fast(program), torch.ones(3))
