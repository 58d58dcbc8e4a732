"""Where constants lie: equal bytes once, and those of the caller's tensors nowhere else."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.cuda.build.compile import CompileOptions
from targets.cuda.planning.plan import plan_host
from targets.cuda.planning.program import load_module
from targets.cuda.runtime.constants import HEAD, ConstantLayout
from targets.cuda.runtime.planned import CONSTANTS
from tests.targets.cuda.fakes.fake_driver import FakeDriver
from tests.targets.cuda.fakes.fake_torch import FakeTorch
from tests.targets.cuda.samples import parse

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
COUNT = HEAD // 2


def module_of(weights: WeightStore, arrays: list[Array], parameters: bool = False):
    """Each output is a copy of a constant. `parameters`: whether their values may change."""
    names = [f"c{k}" for k in range(len(arrays))]
    types = [f"f32[{', '.join(map(str, a.shape))}]" for a in arrays]
    add = weights.add_parameter if parameters else weights.add
    keys = [add(n, a).key for n, a in zip(names, arrays, strict=True)]
    outputs = ", ".join(f"%y{k}: {t}" for k, t in enumerate(types))
    body = "\n".join(f"%{n} = host.constant #strata.weight<\"{n}\", {key}> : {t}\n"
                     f"host.copy %{n}, %y{k}"
                     for k, (n, t, key) in enumerate(zip(names, types, keys, strict=True)))
    shown = ", ".join(f'"{n}"' for n in names)
    return parse(f"""builtin.module {{
      host.func @main(%x: f32[1], {outputs}) inputs ["x"] outputs [{shown}] sizes() {{
        {body}
        host.return
      }}
    }}""")


def arrays() -> list[Array]:
    """Two with equal bytes, one that differs at its end only, and one of another size."""
    one = np.arange(COUNT, dtype=np.float32)
    last = one.copy()
    last[-1] = np.nan
    return [one, one.reshape(COUNT // 8, 8), last, one[:4]]


def test_equal_bytes_have_one_place() -> None:
    weights = WeightStore()
    module = module_of(weights, arrays())
    layout = ConstantLayout(weights)
    plan = plan_host(module).placed(layout)
    places = [step.places[0] for step in plan.steps]
    assert [p.memory for p in places] == [CONSTANTS] * 4
    offsets = [p.offset.constant for p in places]
    assert offsets[0] == offsets[1] and len(set(offsets)) == 3
    assert layout.size == 2 * 4 * COUNT + 256
    assert len(plan.constants) == 4 and len(layout.filled) == 3


@needs_triton
@pytest.mark.parametrize("shift", [0, 4])
def test_the_callers_tensors_are_read_where_they_are(
    monkeypatch: pytest.MonkeyPatch, shift: int,
) -> None:
    """But not where kernels cannot read them."""
    weights = WeightStore()
    module = module_of(weights, arrays())
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    torch = FakeTorch(device)
    torch.install(monkeypatch)
    weights.residents += [torch.tensor(a, shift) for a in (arrays()[1], arrays()[3] + 1)]
    before = set(device.memory)
    executable = load_module(module, weights, CompileOptions())
    constants = set(device.memory) - before
    assert sum(device.memory[a].size for a in constants) == (1 + (shift > 0)) * 4 * COUNT + 256
    weights.arrays.clear()
    for _ in range(2):
        found = executable.run([torch.tensor(np.ones(1, np.float32))])
        for y, wanted in zip(found, arrays(), strict=True):
            np.testing.assert_array_equal(y.numpy(), wanted)


@needs_triton
def test_nothing_is_kept_of_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = WeightStore()
    module = module_of(weights, arrays())
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    executable = load_module(module, weights, CompileOptions())
    contents = [weakref.ref(array) for array in weights.arrays.values()]
    weights.arrays.clear()
    assert len(contents) == 4 and all(content() is None for content in contents)
    for y, wanted in zip(executable.run([np.ones(1, np.float32)]), arrays(), strict=True):
        np.testing.assert_array_equal(y, wanted)


@needs_triton
@pytest.mark.parametrize("shift", [0, 4])
def test_parameters_stay_in_the_callers_tensors(
    monkeypatch: pytest.MonkeyPatch, shift: int,
) -> None:
    """Their contents need not be on the host. Those that kernels cannot read are copied on the
    device. Other values are other tensors, and nothing is compiled for them."""
    weights = WeightStore()
    given = {f"c{k}": a for k, a in enumerate(arrays())}
    module = module_of(weights, list(given.values()), parameters=True)
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    torch = FakeTorch(device)
    torch.install(monkeypatch)
    tensors = {name: torch.tensor(array, shift) for name, array in given.items()}
    weights.hold(tensors)
    weights.arrays.clear()
    before = set(device.memory)
    device.log.clear()
    executable = load_module(module, weights, CompileOptions())
    assert all(int(line.split()[1]) <= HEAD for line in device.log if line.startswith("download"))
    own = sum(device.memory[a].size for a in set(device.memory) - before)
    assert own == (3 * 4 * COUNT + 256 if shift else 1)
    check_outputs(executable.run([torch.tensor(np.ones(1, np.float32))]), given)
    other = {name: array + 1 for name, array in given.items()}
    store = weights.with_values({}, list(weights.parameters), {
        name: torch.tensor(array, shift) for name, array in other.items()})
    assert store is not None
    device.log.clear()
    again = executable.with_weights(store)
    check_outputs(again.run([torch.tensor(np.ones(1, np.float32))]), other)
    check_outputs(executable.run([torch.tensor(np.ones(1, np.float32))]), given)
    assert not any(line.startswith("compile") for line in device.log)


def check_outputs(found: Sequence[Any], wanted: Mapping[str, Array]) -> None:
    for y, array in zip(found, wanted.values(), strict=True):
        np.testing.assert_array_equal(y.numpy(), array)
