"""Small programs in Python's and PyTorch's manners, each with what makes its arguments.

Each returns what a caller can see of a call: results, and what it has changed.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Make = Callable[[], tuple[Any, ...]]
PROGRAMS: dict[str, tuple[Callable[..., Any], Make]] = {}



def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape)


def program(*shapes: tuple[int, ...]) -> Callable[[Any], Any]:
    """Mark a function whose arguments are random tensors of these shapes."""
    return made_by(lambda: tuple(drawn(*shape) for shape in shapes))


def made_by(make: Make) -> Callable[[Any], Any]:
    """Mark a function with what makes its arguments."""
    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = function, make
        return function
    return mark


# ---------------------------------------------------------------------- views and mutation
@program((4, 3))
def writes_through_views(x: Tensor) -> Any:
    rows, columns = x[1:], x.t()
    rows.add_(1)
    columns[0] = 5
    return rows * 2, columns.sum(0), x


@program((4, 3))
def returns_views_of_results(x: Tensor) -> Any:
    made = x * 2
    return made, made.view(-1), made[0], made.t()


@made_by(lambda: (lambda base: (base[:5], base[3:], base))(torch.arange(8.0)))
def arguments_that_overlap(x: Tensor, y: Tensor, base: Tensor) -> Any:
    x.mul_(2)
    return y + 1, base


@made_by(lambda: (lambda x: (x, x))(drawn(3)))
def one_argument_twice(x: Tensor, y: Tensor) -> Any:
    x.add_(1)
    return x + y, x is y


@program((3,))
def writes_into_out(x: Tensor) -> Any:
    made = torch.empty_like(x)
    torch.add(x, 1, out=made)
    torch.mul(made, 2, out=x)
    return made, x


@program((3, 3))
def writes_where_a_mask_is(x: Tensor) -> Any:
    x[x > 0] = 0
    x[..., 0] += 2
    return x


@made_by(lambda: (drawn(4, 6).t(), drawn(6, 8)[:, ::2], drawn(1, 4).expand(4, 4)))
def strides_of_all_kinds(x: Tensor, y: Tensor, z: Tensor) -> Any:
    return x + 1, x * y, torch.where(x > 0, x, y), z * 2, z + z.t(), torch.empty_like(x).stride()


@made_by(lambda: (torch.randn(3, 4, dtype=torch.complex64).t(),))
def complex_numbers(z: Tensor) -> Any:
    return z * z.conj(), z + 1, z.abs(), torch.view_as_real(z * 2).sum(), z.real + z.imag


@program((0, 4))
def no_elements(x: Tensor) -> Any:
    return x.sum(), x.prod(0), torch.cat([x, x]), x.t() @ x, x.mean(1), F.softmax(x, -1)


# ---------------------------------------------------------------------- functions
def _doubling(x: Tensor, count: int) -> Iterator[Tensor]:
    for k in range(count):
        x = x * 2 + k
        yield x


def _adding() -> Any:
    total: Any = 0
    while True:
        total = total + (yield total)


@program((5,))
def generators(x: Tensor) -> Any:
    def both() -> Iterator[Tensor]:
        yield from _doubling(x, 2)
        yield x

    adding = _adding()
    next(adding)
    return sum(_doubling(x, 4)), list(both())[-1], adding.send(x), adding.send(x * 2)


@program((5,))
def a_variable_of_a_closure(x: Tensor) -> Any:
    count = 0

    def more(y: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return y + count

    return more(more(x)), count


def _scaled(scale: int) -> Callable[[Any], Any]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) * scale
        return called
    return decorate


@program((3,))
def decorated_functions(x: Tensor) -> Any:
    @_scaled(3)
    def shifted(x: Tensor, *, by: int = 1) -> Tensor:
        return x + by

    return shifted(x, by=4), functools.partial(shifted, by=2)(x)


@program((2,), (2,), (2,))
def stars(*xs: Tensor, **named: Tensor) -> Any:
    first, *rest = xs
    return first + sum(rest), [*rest, first], {**named, "n": first}


@program((3, 2))
def sequences(x: Tensor) -> Any:
    pairs = filter(lambda p: p[1] != 1, zip(x.unbind(0), range(3), strict=True))
    ordered = sorted([(2, x), (1, x + 1)], key=lambda p: p[0])
    return [p[0] * p[1] for p in pairs], [v * k for k, v in ordered]


# ---------------------------------------------------------------------- objects
@dataclasses.dataclass
class Pair:
    a: Tensor
    b: Tensor
    scale: float = 2.0


class Kind(enum.Enum):
    FIRST = 1
    SECOND = 2


class Squares:
    """An iterator, an attribute with a setter, and attributes made on demand."""

    def __init__(self, x: Tensor):
        self.x, self.count = x, 0

    def __iter__(self) -> Squares:
        return self

    def __next__(self) -> Tensor:
        if self.count == 3:
            raise StopIteration
        self.count += 1
        return self.x * self.count**2

    def __getattr__(self, name: str) -> int:
        return len(name)

    @property
    def half(self) -> Tensor:
        return self.x / 2

    @half.setter
    def half(self, value: Tensor) -> None:
        self.x = value * 2


@made_by(lambda: (Pair(drawn(3), drawn(3)), Kind.SECOND))
def records_and_kinds(pair: Pair, kind: Kind) -> Any:
    other = dataclasses.replace(pair, a=pair.a * pair.scale)
    pair.b = other.a - 1
    return other.a + other.b if kind is Kind.SECOND else other.a, other.scale, pair.b


@program((3,))
def objects_of_python(x: Tensor) -> Any:
    squares = Squares(x)
    squares.half = x + 4
    return sum(squares), squares.half, x * squares.abcd, squares.count


@made_by(lambda: ({"b": drawn(2), "a": drawn(2), "c": drawn(2)},))
def orders_of_dictionaries(given: dict[str, Tensor]) -> Any:
    made = {key: value * k for k, (key, value) in enumerate(given.items())}
    made["z"] = made.pop("b")
    made.update(q=given["a"])
    moved = collections.OrderedDict(made)
    moved.move_to_end("a")
    grouped: dict[int, list[Tensor]] = collections.defaultdict(list)
    for k, value in enumerate(moved.values()):
        grouped[k % 2].append(value)
    given["new"] = moved["a"]
    return list(made.items()), list(moved.items()), list(grouped.items()), list(given)


@made_by(lambda: ([drawn(2)],))
def arguments_that_grow(given: list[Tensor]) -> Any:
    given.append(given[0] * 2)
    given[0] = given[0] + 1
    return len(given), given


# ---------------------------------------------------------------------- control
@program((3,))
def exceptions(x: Tensor) -> Any:
    try:
        made = x * 2
        if x.shape[0] > 2:
            raise ValueError("large")
    except ValueError as error:
        made = x + len(str(error))
    finally:
        x = x - 1
    try:
        found = {"a": x}["b"]
    except KeyError:
        found = x * 3
    return made, found


@program((3,))
def loops_that_end_early(x: Tensor) -> Any:
    made: list[Tensor] = []
    for k in range(5):
        try:
            if k == 1:
                continue
            if k == 3:
                break
            made.append(x * k)
        finally:
            x = x + 1
    else:
        x = x * 100
    return made, x


@program((3, 2))
def patterns(x: Tensor) -> Any:
    match x.shape, x.dtype:
        case (rows, columns), torch.float32:
            return x.sum(0) * rows + columns
        case _:
            return x


class Counts:
    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Counts:
        self.count += 1
        return self

    def __exit__(self, *given: Any) -> None:
        self.count += 10


@contextlib.contextmanager
def _without_gradients(scale: int) -> Iterator[int]:
    with torch.no_grad():
        yield scale * 2


@made_by(lambda: (drawn(3).requires_grad_(),))
def contexts(x: Tensor) -> Any:
    with Counts() as counts:
        made = x * counts.count
    with _without_gradients(3) as scale:
        plain = x * scale
    return made + counts.count, plain, plain.requires_grad, (plain + x).requires_grad


@program((4, 8), (8, 8))
def autocast_regions(x: Tensor, w: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = x @ w
        with torch.autocast("cpu", enabled=False):
            exact = made.float() @ w
    return made, exact, (x @ w)
