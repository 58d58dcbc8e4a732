"""Random numbers of exported programs: their distributions, seeds, loops, and equal bits anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import compiler
from compiler.frontend.torch.core.decompose import decompose
from compiler.frontend.torch.core.in_place import without_mutation
from compiler.frontend.torch.drawing import drawing_importers
from compiler.frontend.torch.ops import importers
from dialects.semantics.philox import philox_words

X = torch.zeros(40, 51)
N = X.numel()
PI = np.pi


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


def _compiled(program: Any, target: str = "cpu") -> Callable[..., Any]:
    """A function of arrays, which returns the only result, or all in a list."""
    executable = compiler.compile(program, target=target)

    def call(*given: Any) -> Any:
        found = executable(*given)
        return found[0] if len(found) == 1 else found

    return call


def _exported(function: Callable[..., Any], *given: Any, **options: Any) -> Any:
    return torch.export.export(Function(function), given, **options)


@pytest.mark.parametrize(("counter", "key", "words"), [
    ((0,) * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
])
def test_bits_are_those_of_the_publication(
    counter: tuple[int, ...], key: tuple[int, int], words: str
) -> None:
    assert [f"{w:08x}" for w in philox_words(counter, key)] == words.split()


DRAWN: dict[str, tuple[Callable[[Any], Any], float, float, float, float]] = {
    "rand": (torch.rand_like, 0.5, 12 ** -0.5, 0, 1),
    "rand_f64": (lambda x: torch.rand(N, dtype=torch.float64), 0.5, 12 ** -0.5, 0, 1),
    "rand_bf16": (lambda x: torch.rand(N, dtype=torch.bfloat16), 0.5, 12 ** -0.5, 0, 1),
    "rand_f16": (lambda x: torch.rand_like(x, dtype=torch.float16), 0.5, 12 ** -0.5, 0, 1),
    "uniform": (lambda x: x.clone().uniform_(-3, 5), 1, 8 * 12 ** -0.5, -3, 5),
    "randint": (lambda x: torch.randint(9, x.shape), 4, (80 / 12) ** 0.5, 0, 9),
    "randint_low": (lambda x: torch.randint_like(x, -2, 3), 0, 2 ** 0.5, -2, 3),
    "randint_wide": (lambda x: torch.randint(-2 ** 62, 2 ** 62, x.shape) / 2.0 ** 62, 0,
                     3 ** -0.5, -1, 1),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.25), 0.25, 0.1875 ** 0.5, 0, 1.1),
    "bernoulli_p": (lambda x: x.clone().bernoulli_(0.75), 0.75, 0.1875 ** 0.5, 0, 1.1),
    "dropout": (lambda x: torch.nn.functional.dropout(x + 1, 0.2), 1, 0.5, 0, 1.3),
    "randn": (torch.randn_like, 0, 1, -6, 6),
    "randn_f64": (lambda x: torch.randn(x.shape, dtype=torch.float64), 0, 1, -6, 6),
    "randn_bf16": (lambda x: torch.randn(x.shape, dtype=torch.bfloat16), 0, 1, -6, 6),
    "normal": (lambda x: x.clone().normal_(7, 0.5), 7, 0.5, 4, 10),
    "normal_tensors": (lambda x: torch.normal(x + 7, x + 0.5), 7, 0.5, 4, 10),
    "log_normal": (lambda x: x.clone().log_normal_(0, 0.25), np.exp(1 / 32),
                   (np.expm1(1 / 16) * np.exp(1 / 16)) ** 0.5, 0, 5),
    "exponential": (lambda x: x.clone().exponential_(4), 0.25, 0.25, 0, 5),
    "geometric": (lambda x: x.clone().geometric_(0.25), 4, 12 ** 0.5, 1, 60),
    "cauchy": (lambda x: torch.atan(x.clone().cauchy_(0, 1)), 0, PI * 12 ** -0.5, -PI / 2, PI / 2),
    "random": (lambda x: torch.empty(N).random_() / 2 ** 24, 0.5, 12 ** -0.5, 0, 1.1),
    "random_bytes": (lambda x: torch.empty(N, dtype=torch.int8).random_(), 63.5,
                     128 * 12 ** -0.5, 0, 128),
    "random_to": (lambda x: torch.empty(N, dtype=torch.int16).random_(9), 4, (80 / 12) ** 0.5,
                  0, 9),
    "rrelu": (lambda x: torch.nn.functional.rrelu(x - 1, 0.25, 0.75, True), -0.5, 0.5 * 12 ** -0.5,
              -0.75, 0),
    "weighted": (lambda x: torch.multinomial(torch.tensor([1., 0., 0., 2., 1.]), N, True), 2.5,
                 2.25 ** 0.5, 0, 5),
    "chosen": (lambda x: torch.multinomial(torch.tensor([[1., 0., 3.]]).expand(N, 3), 2)[:, 0],
               1.5, 0.75 ** 0.5, 0, 3),
    "gamma": (lambda x: torch._standard_gamma(x + 4), 4, 2, 0, 30),
    "gamma_small": (lambda x: torch._standard_gamma(x + 0.5), 0.5, 0.5 ** 0.5, 0, 20),
    "dirichlet": (lambda x: torch._sample_dirichlet((x + 2).reshape(-1, 1).repeat(1, 3))[:, 0],
                  1 / 3, (2 / 63) ** 0.5, 0, 1),
    "poisson": (lambda x: torch.poisson(x + 3), 3, 3 ** 0.5, 0, 20),
    "poisson_large": (lambda x: torch.poisson(x + 500), 500, 500 ** 0.5, 350, 650),
    "binomial": (lambda x: torch.binomial(x + 20, x + 0.25), 5, 3.75 ** 0.5, 0, 20),
    "binomial_often": (lambda x: torch.binomial(x + 20, x + 0.75), 15, 3.75 ** 0.5, 0, 21),
    "binomial_large": (lambda x: torch.binomial(x + 1000, x + 0.5), 500, 250 ** 0.5, 400, 600),
    "rand_complex": (lambda x: torch.view_as_real(torch.rand(x.shape, dtype=torch.complex64)),
                     0.5, 12 ** -0.5, 0, 1),
    "randn_complex": (lambda x: torch.view_as_real(torch.randn_like(torch.complex(x, x))),
                      0, 0.5 ** 0.5, -5, 5),
    "normal_complex": (lambda x: torch.complex(x, x).normal_(7, 0.5).real, 7, 0.125 ** 0.5, 5, 9),
    "randperm": (lambda x: torch.randperm(N), (N - 1) / 2, N * 12 ** -0.5, 0, N),
}
"""Of each operator a function, and the mean, the deviation and the limits of its numbers."""


@pytest.mark.parametrize("name", DRAWN)
def test_numbers_have_their_distribution(name: str) -> None:
    """Means of 2,040 numbers are within five of their deviations; the seed alone decides them, for
    all targets alike up to rounding."""
    function, mean, deviation, low, high = DRAWN[name]
    program = _exported(function, X)
    found, again, other = (np.asarray(_run(program, "cpu", seed), np.float64)
                           for seed in (11, 11, 12))
    np.testing.assert_array_equal(found, again)
    assert not np.array_equal(found, other)
    assert found.min() >= low and found.max() < high
    assert abs(found.mean() - mean) < 5 * deviation / N ** 0.5
    assert 0.85 < found.std() / deviation < 1.15
    same = np.asarray(_run(program, "reference", 11), np.float64)
    np.testing.assert_allclose(found, same, rtol=1e-5, atol=1e-6)


def _run(program: Any, target: str, seed: int) -> Any:
    return _compiled(program, target)(X.numpy(), np.int64(seed))


def test_each_importer_has_a_distribution() -> None:
    """The table above draws by every operator that has an importer."""
    names = set[str]()
    known = {**drawing_importers(), **importers()}
    for function, *_ in (*DRAWN.values(), (_others,)):
        names |= {without_mutation(n) or str(n.target)
                  for n in decompose(_exported(function, X), known).graph.nodes}
    assert set(drawing_importers()) <= names


def _others(x: Any) -> Any:
    return x.clone().bernoulli_(x + 0.5), torch.randint_like(x, 5), torch.randint(1, 9, (3,))


def test_parameters_at_and_beyond_their_limits() -> None:
    """Chances of 0 and 1, rates and shapes of 0, infinite and NaN ones; those outside give NaN."""
    def function(rates: Any, chances: Any) -> Any:
        return (torch.poisson(rates), torch._standard_gamma(rates),
                torch.binomial(torch.full_like(chances, 9), chances))

    rates = torch.tensor([0.0, -1.0, np.nan, 5.0, 1e8])
    chances = torch.tensor([0.0, 1.0, -0.5, 1.5, np.nan])
    program = _exported(function, rates, chances)
    events, shapes, successes = _compiled(program)(rates.numpy(), chances.numpy(), np.int64(1))
    np.testing.assert_array_equal(np.isnan(events), [False, True, True, False, False])
    np.testing.assert_array_equal(np.isnan(shapes), [False, True, True, False, False])
    assert events[0] == shapes[0] == 0 and abs(events[4] / 1e8 - 1) < 1e-3
    np.testing.assert_array_equal(successes, [0, 9, np.nan, np.nan, np.nan])


def test_numbers_are_drawn_until_they_are_accepted_at_any_size() -> None:
    batch = torch.export.Dim("batch", min=0)
    program = _exported(torch.poisson, X[:, 0] + 20, dynamic_shapes=(({0: batch},),))
    executable = _compiled(program)
    for rows in (0, 1, 300):
        found = executable(np.full(rows, 20, np.float32), np.int64(3))
        assert found.shape == (rows,) and ((found > 0) & (found < 60)).all()


def test_indices_without_replacement_differ() -> None:
    found = _run(_exported(lambda x: torch.multinomial(x + 1, 50), X), "cpu", 0)
    assert all(len(set(row)) == 50 for row in found.tolist())


def test_draws_differ_from_each_other() -> None:
    found = _run(_exported(lambda x: (torch.rand_like(x), torch.rand_like(x)), X), "cpu", 0)
    assert abs(np.corrcoef(found[0].reshape(-1), found[1].reshape(-1))[0, 1]) < 0.1


def test_sizes_may_be_open() -> None:
    """Element k of a draw is the same at all sizes; 0 and 1 are sizes, too."""
    batch = torch.export.Dim("batch", min=0)
    program = _exported(lambda x: torch.rand_like(x), X, dynamic_shapes=(({0: batch},),))
    executable = _compiled(program)
    whole = executable(np.zeros((7, 51), np.float32), np.int64(3))
    for rows in (0, 1, 5):
        np.testing.assert_array_equal(
            executable(np.zeros((rows, 51), np.float32), np.int64(3)), whole[:rows])


def test_iterations_draw_others() -> None:
    """Of a scan, of a scan inside of it, and of a while loop."""
    from torch._higher_order_ops.scan import scan

    def step(total: Any, x: Any) -> Any:
        return total + torch.rand_like(x), torch.rand_like(x)

    def rows(total: Any, x: Any) -> Any:
        last, drawn = scan(step, total[0], x)
        return last[None], drawn

    def function(x: Any, count: Any) -> Any:
        last, drawn = scan(rows, x[0, :1], x)
        _, looped = torch.while_loop(
            lambda k, y: k < count.sum(), lambda k, y: (k + 1, y * 2 + torch.rand_like(y).round()),
            (torch.tensor(0), torch.zeros(64)))
        return last, drawn, looped

    given = torch.zeros(3, 4, 5), torch.tensor([20])
    program = _exported(function, *given)
    results = [_compiled(program, target)(*(x.numpy() for x in given), np.int64(5))
               for target in ("cpu", "reference")]
    for found, same in zip(*results, strict=True):
        np.testing.assert_allclose(found, same, rtol=1e-5)
    _, drawn, looped = results[0]
    assert len(np.unique(drawn)) == drawn.size
    assert len(np.unique(looped)) > 60


def test_branches_draw() -> None:
    def function(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x + torch.rand_like(x), lambda x: x - 1, (x,))

    executable = _compiled(_exported(function, X))
    drawn = executable(X.numpy() + 1, np.int64(0)) - 1
    assert 0.4 < drawn.mean() < 0.6
    np.testing.assert_array_equal(executable(X.numpy(), np.int64(0)), X.numpy() - 1)


def test_attention_drops_weights() -> None:
    """Each weight is 0, or twice what it is without dropout. Values of a unit matrix show them."""
    attend = torch.nn.functional.scaled_dot_product_attention
    query, unit = torch.randn(2, 3, 16, 8), torch.eye(16).expand(2, 3, 16, 16).contiguous()
    program = _exported(lambda q, v: attend(q, q, v, dropout_p=0.5), query, unit)
    found = _compiled(program)(query.numpy(), unit.numpy(), np.int64(4))
    whole = 2 * attend(query, query, unit).numpy()
    dropped = found == 0
    assert 0.4 < dropped.mean() < 0.6
    np.testing.assert_allclose(found[~dropped], whole[~dropped], rtol=1e-4)


def test_a_file_takes_a_seed_under_a_name_of_its_own(tmp_path: Path) -> None:
    class Seeded(torch.nn.Module):
        def forward(self, seed: Any) -> Any:
            return seed + torch.rand_like(seed)

    torch.export.save(torch.export.export(Seeded(), (X,)), tmp_path / "drawing.pt2")
    executable = compiler.compile(tmp_path / "drawing.pt2", target="cpu")
    assert list(executable.signature.input_names) == ["seed", "seed_1"]
    [found] = executable(seed=X.numpy(), seed_1=np.int64(1))
    assert 0.45 < found.mean() < 0.55


def test_a_program_with_draws_runs_in_pytorch_again() -> None:
    """A graph-level module becomes ATen operators, which compute the same bits."""
    program = _exported(lambda x: (torch.rand_like(x), torch.randint(100, (7,))), X)
    module = compiler.to_fx(program)
    for found, same in zip(module(X, torch.tensor(-6)), _run(program, "cpu", -6), strict=True):
        np.testing.assert_array_equal(found.numpy(), same)


def test_a_program_whose_results_depend_on_no_draw_takes_no_seed() -> None:
    """As that of a speech encoder in evaluation, which draws which layers to skip in training."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            if torch.rand([]) is None:
                return x
            x = 2 * x
        return x

    program = _exported(forward, X)
    assert sum("rand" in str(n.target) for n in program.graph.nodes) == 2
    np.testing.assert_array_equal(_compiled(program)(X.numpy() + 3), 12 + 0 * X.numpy())
    dropped = _exported(lambda x: (torch.rand(x.shape) + x, torch.rand([]))[0], X)
    assert compiler.compile(dropped).signature.input_names[-1] == "seed"
