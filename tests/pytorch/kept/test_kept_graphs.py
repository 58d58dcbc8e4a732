"""Graphs of torch.compile on disk: found by what they say, whatever the values of their weights."""

from __future__ import annotations

import copy
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compiler.pipeline.driver import Compiler
from compiler.programs import circumstances
from compiler.programs.entry import read_entry
from compiler.torch import shared
from tests import processes
from tests.pytorch.kept.kept_models import CASES, Mixed, Words

ROOT = Path(__file__).parents[3]
Model = Callable[..., Any]
UNSET = ("STRATA_DEBUG", "STRATA_CACHE_SIZE")
"""Variables with which nothing is kept."""


class Store:
    """A cache of its own. `compiled` counts compilations."""

    def __init__(self, cache: Path) -> None:
        self.cache, self.compiled = cache, 0

    def __call__(self, model: Model, inputs: Sequence[Any], **options: Any) -> tuple[Any, Any]:
        """What a process without compiled code computes, and what eager mode does; each with the
        arguments afterwards."""
        torch._dynamo.reset()
        shared._known.clear()
        dynamic = options.pop("dynamic", None)
        chosen = {"cache": str(self.cache), "threads": 1, **options}
        found = torch.compile(model, backend="strata", options=chosen, dynamic=dynamic)
        one, other = copy.deepcopy(inputs), copy.deepcopy(inputs)
        with torch.no_grad():
            return (found(*one), one), (model(*other), other)

    def check(self, model: Model, inputs: Sequence[Any], compiled: int, **options: Any) -> None:
        """Compare the two, and the number of compilations."""
        before = self.compiled
        torch.testing.assert_close(*self(model, inputs, **options), rtol=2e-2, atol=1e-3)
        assert self.compiled - before == compiled

    def entries(self) -> list[Path]:
        found = (self.cache / "programs" / "entries").glob("*")
        return sorted(path for path in found if path.suffix != ".whole")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    found, prepare = Store(tmp_path / "cache"), Compiler.prepare

    def counted(self: Compiler) -> Any:
        found.compiled += 1
        return prepare(self)

    monkeypatch.setattr(Compiler, "prepare", counted)
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield found


def drawn(model: nn.Module) -> nn.Module:
    """The model with other weights."""
    with torch.no_grad():
        for value in model.state_dict().values():
            if value.is_floating_point():
                value.uniform_(0.1, 0.6)
    return model.eval()


@pytest.mark.parametrize("name", CASES)
def test_a_later_process_compiles_nothing_for_other_weights(name: str, store: Store) -> None:
    make, inputs, dynamic = CASES[name]
    store(make().eval(), inputs(), dynamic=dynamic)
    assert store.compiled >= len(store.entries()) > 0
    sizes = sum(path.stat().st_size for path in store.entries())
    assert OPERATION not in computations(store)
    for _ in range(2):
        store.check(drawn(make()), inputs(), 0, dynamic=dynamic)
    assert sizes < 400_000


OPERATION = "dialects.graph.folded"
"""The home of computations by an operation of the graph, for which xDSL is loaded."""


def computations(store: Store) -> set[str]:
    """Where the computations on weights are defined that kept programs need."""
    recipes = [read_entry(str(path), path.name).facts["recipes"] for path in store.entries()]
    return {how[0] for of in recipes if of for _, how, _ in of["recipes"].values()}


def test_values_change_after_loading(store: Store) -> None:
    store(Mixed().eval(), [torch.randn(2, 8, 12, 12)])
    model, x = drawn(Mixed()), torch.randn(2, 8, 12, 12)
    torch._dynamo.reset()
    shared._known.clear()
    fast = torch.compile(model, backend="strata", options={"cache": str(store.cache)})
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(x), model(x), rtol=1e-3, atol=1e-3)
            drawn(model)
    assert store.compiled == 1


class Masked(nn.Module):
    """A mask of floats, whose contents are recognized."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, q: Tensor) -> Tensor:
        return torch.softmax(q @ q.mT + self.mask, -1) @ q


def test_contents_on_which_code_depends_are_compared(store: Store) -> None:
    causal = torch.full((256, 256), -torch.inf).triu(1)
    masks, q = [causal, torch.randn(256, 256)], torch.randn(256, 8)
    for mask in (*masks, *masks):  # whether they are recognized is the processor's choice
        torch.testing.assert_close(*store(Masked(mask.clone()), [q]), rtol=1e-3, atol=1e-3)
    assert store.compiled <= 2


def test_computations_that_are_no_data_depend_on_the_contents(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.programs.recipes.computation_facts", lambda compute: None)
    models, x = [Mixed().eval(), drawn(Mixed())], torch.randn(2, 8, 12, 12)
    for model in models:
        store.check(model, [x], 1)
    for model in models:
        store.check(copy.deepcopy(model), [x], 0)


def test_integers_are_part_of_a_graph(store: Store) -> None:
    ids = torch.arange(12).reshape(2, 6)
    store.check(Words(), [ids], 1)
    other = Words()
    other.order.copy_(torch.arange(6))
    store.check(other, [ids], 1)
    store.check(Words(), [ids], 0)


def test_filters_that_are_not_finite(store: Store) -> None:
    model, x = nn.Conv2d(16, 16, 3), torch.randn(1, 16, 30, 30)
    store.check(model, [x], 1)
    with torch.no_grad():
        model.weight[0, 0, 0, 0] = torch.inf
    found, eager = store(model, [x])
    torch.testing.assert_close(found[0].isfinite(), eager[0].isfinite())


def test_what_differs_is_compiled(store: Store) -> None:
    def function(x: Tensor) -> Tensor:
        return (x * 2 + 1).softmax(-1)

    def other(x: Tensor) -> Tensor:
        return (x * 3 + 1).softmax(-1)

    x = torch.randn(4, 6)
    store.check(function, [x], 1)
    different: list[tuple[Model, Tensor, dict[str, Any]]] = [
        (other, x, {}), (function, torch.randn(4, 7), {}), (function, x.half(), {}),
        (function, torch.randn(6, 4).T, {}), (function, x, {"exact": True}),
        (function, x, {"dynamic": True})]
    for model, given, options in different:
        store.check(model, [given], 1, **options)
    for model, given, options in [(function, x, {}), *different]:
        store.check(model, [given], 0, **options)


def test_nothing_is_kept_without_a_cache(store: Store) -> None:
    for _ in range(2):
        store.check(torch.nn.Linear(4, 4), [torch.randn(2, 4)], 1, cache="off")
    assert not store.cache.exists()


def test_another_version_compiles(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.check(torch.nn.Linear(4, 4), [torch.randn(2, 4)], 1)
    software = circumstances.software_text()
    for module in ("kept", "notes"):
        monkeypatch.setattr(f"compiler.programs.{module}.software_text", lambda: software + "!")
    store.check(torch.nn.Linear(4, 4), [torch.randn(2, 4)], 1)


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[next(k for k in range(middle, len(content)) if content[k])] ^= 1  # no padding
    path.write_bytes(content)


def open_to_all(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.parametrize("harm", [halved, flipped, open_to_all, Path.unlink])
@pytest.mark.parametrize("kind", ["entries", "graphs"])
def test_damaged_files_count_as_missing(
    kind: str, harm: Callable[[Path], None], store: Store
) -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    store.check(model, [x], 1)
    for path in (store.cache / "programs" / kind).iterdir():
        harm(path)
    store.check(model, [x], 1)
    store.check(model, [x], 0)


@pytest.mark.parametrize("content", [
    "", "[]", "[[1]]", "{}", '[["w"]]', "3", '[[["a"]]]', pytest.param("[" * 9999, id="deep")])
def test_notes_that_make_no_sense(content: str, store: Store) -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    store.check(model, [x], 1)
    for kind in ("graphs", "notes"):
        for path in (store.cache / "programs" / kind).iterdir():
            path.write_text(content)
    store.check(model, [x], 1)


PROCESS = """
    import sys
    import torch
    sys.path[:0] = [{root!r}, {tests!r}]
    from tests.pytorch.kept.kept_models import CASES

    make, inputs, dynamic = CASES[sys.argv[1]]
    torch.manual_seed(int(sys.argv[2]))
    model, given = make().eval(), inputs()
    with torch.no_grad():
        found = torch.compile(model, backend="strata", dynamic=dynamic)(*given)
        torch.testing.assert_close(found, model(*given), rtol=1e-3, atol=1e-3)
    loaded = sys.modules.keys() & {{"xdsl", "llvmlite", "compiler.pipeline.driver"}}
    print(sorted(loaded))
"""


@pytest.mark.parametrize("name", ["convolutions", "eager parts"])
def test_a_second_process_loads_no_compiler(name: str, tmp_path: Path) -> None:
    script = tmp_path / "process.py"
    script.write_text(textwrap.dedent(PROCESS.format(root=str(ROOT), tests=str(ROOT))))
    said: list[str] = []
    for seed in ("1", "2"):
        done = processes.run([sys.executable, str(script), name, seed], text=True,
                             capture_output=True, cwd=tmp_path, env=environment(tmp_path))
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines()[-1])
    assert said == ["['compiler.pipeline.driver', 'llvmlite', 'xdsl']", "[]"]


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return {**kept, "STRATA_CACHE": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
