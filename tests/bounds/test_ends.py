"""What the ends of loops prove is so: kernels at random, compared with the indices that occur."""

from __future__ import annotations

import random

import pytest
from xdsl.parser import Parser

from dialects.block import KernelOp
from dialects.block.accesses import accesses_of
from dialects.verifying import verify
from passes.analyses.block.ends import Ends
from passes.base import StrataContext

SIZES = range(25)
EXTENTS = ["n", "(n + 3) floordiv 4", "n floordiv 2 + 2", "2*n"]


class Case:
    """A kernel with a loop in which a tile is read, and the indices that it reads."""

    def __init__(self, seed: int):
        draw = random.Random(seed)
        self.size = draw.choice(EXTENTS)
        self.tile, self.step = draw.randint(1, 4), draw.randint(1, 4)
        self.grid = f"(({self.size} + 7) floordiv 8)"
        self.lower = draw.choice(["0", "8*%p", f"{self.step}*(({self.size}) floordiv {self.step})"])
        end = draw.choice([self.size, f"min({self.size}, 8*%p + 8)", "8*%p + 8"])
        self.upper = f"{end} - {draw.randint(0, 4)}"
        factor, shift = draw.choice([1, 1, 1, 2, -1]), draw.choice(["", "", "", " - 1", " + 1"])
        self.index = f"{factor}*%i + t0{shift}"

    @property
    def text(self) -> str:
        return f"""builtin.module {{
          block.kernel @k(%x: f32[{self.size}], %y: f32[1]) grid(%p: {self.grid}) sizes(n) {{
            block.for %i = {self.lower} to {self.upper} step {self.step} parallel {{
              %v = block.load %x[{self.index}] : tile<[{self.tile}]xf32>
              block.yield
            }}
            block.yield
          }}
        }}"""

    def stays_inside(self) -> bool:
        """Whether all indices are inside for all sizes that are tried."""
        for n in SIZES:
            size = value(self.size, n=n)
            for p in range(value(self.grid, n=n)):
                for i in range(value(self.lower, n=n, p=p), value(self.upper, n=n, p=p), self.step):
                    first = value(self.index, i=i, t0=0)
                    if first < 0 or first + self.tile > size:
                        return False
        return True


def value(text: str, **values: int) -> int:
    return eval(text.replace("floordiv", "//").replace("%", ""), {"min": min}, values)


def proven(case: Case) -> bool:
    module = Parser(StrataContext.with_dialects(), case.text).parse_module()
    verify(module)
    kernel = module.body.block.first_op
    assert isinstance(kernel, KernelOp)
    return Ends().prove(next(iter(accesses_of(kernel))))


@pytest.mark.parametrize("part", range(8))
def test_only_what_is_so_is_proven(part: int) -> None:
    cases = [Case(seed) for seed in range(40 * part, 40 * part + 40)]
    found = [proven(case) for case in cases]
    assert any(found)
    wrong = [case.text for case, yes in zip(cases, found, strict=True)
             if yes and not case.stays_inside()]
    assert wrong == []


def test_whole_tiles_and_both_tails_of_an_axis() -> None:
    """The three loops of an axis whose tile is 6: all of them end with their size."""
    for lower, upper, step in (("0", "n - 5", 6), ("6*(n floordiv 6)", "n - 1", 2),
                               ("2*(n floordiv 2)", "n", 1)):
        case = Case(0)
        case.size, case.lower, case.upper, case.step, case.tile = "n", lower, upper, step, step
        case.index = "%i + t0"
        assert proven(case) and case.stays_inside()
        case.tile = step + 1
        assert not proven(case) and not case.stays_inside()
