"""What crosses a call has the shapes that both sides say, on IR that does not see to it.

Only sizes are passed to a called function: an importer that gets a dim wrong, or a body that
returns other shapes than it takes, would read and write foreign memory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import compiler
from dialects.host import host_functions
from dialects.strata.assumptions import SizeError
from dialects.strata.sizes import assumptions_of
from dialects.strata.types import Array
from passes.base import PassError
from tests.bounds.test_bounds import checked, floats, run

KERNELS = """
  block.kernel @copy(%x: f32[a, b], %y: f32[a, b]) grid(%p: a, %q: b) sizes(a, b) {
    %v = block.load %x[%p, %q] : tile<f32>
    block.store %v, %y[%p, %q]
    block.yield
  }
"""
TRUE = np.array(True)


def branch(given: str, taken: str, returned: str, result: str, sizes: str = "") -> str:
    """An If whose branches take %x as `taken` and return a copy of %y as `returned`."""
    rows, columns = returned.split(", ")
    return f"""
  host.func @main(%x: f32[{given}], %y: f32[h, w], %c: i1[]) inputs ["x", "y", "c"]
      outputs ["r": f32[{result}]] sizes(n, m, h, w) arena(0) {{
    %r = strata.if %c then @f else @f (%x, %y) buffers f32[{result}]
    %z = host.alloc : f32[{result}]
    host.launch @copy(%r, %z) sizes({result})
    host.free %r
    host.return %z
  }}
  host.func @f(%x: f32[{taken}], %y: f32[h, w]) inputs ["x", "y"]
      outputs ["z": f32[{returned}]] sizes({sizes}h, w) arena(0) {{
    %z = host.alloc : f32[{returned}]
    host.launch @copy(%x, %z) sizes({rows}, {columns})
    host.return %z
  }}
{KERNELS}"""


def loop(carried: str, returned: str, result: str) -> str:
    """A loop whose body takes `carried`, given f32[n, m], and returns `returned`."""
    defines = " defines(r)" if "r" in result else ""
    rows, columns = returned.split(", ")
    sizes = "n, m, h, w, k" if "n" in carried else "s, n, m, h, w, k"
    return f"""
  host.func @main(%x: f32[n, m], %y: f32[h, w]) inputs ["x", "y"]
      outputs ["r": f32[{result}]] sizes(n, m, h, w) arena(0) {{
    %r = strata.loop @f at k trip 3 carried(%x) with(%y){defines} buffers f32[{result}]
    host.return %r
  }}
  host.func @f(%x: f32[{carried}], %y: f32[h, w]) inputs ["x", "y"]
      outputs ["z": f32[{returned}]] sizes({sizes}) arena(0) {{
    %z = host.alloc : f32[{returned}]
    host.launch @copy(%y, %z) sizes({rows}, {columns})
    host.return %z
  }}
{KERNELS}"""


def assumed_by(text: str) -> dict[str, list[str]]:
    module, _ = checked(text)
    return {f.sym_name.data: [f"{a.left} {a.relation} {a.right}" for a in assumptions_of(f)
                              if not a.is_limit] for f in host_functions(module)}


def on_cpu(text: str, folder: Path, *inputs: Array) -> list[Array]:
    """By machine code, which both ways of compiling must protect."""
    path = folder / "model.mlir"
    path.write_text(f"// strata: level=block\nbuiltin.module {{{text}}}\n")
    results = [_outcome(compiler.compile(path, cache="off", check=check), inputs)
               for check in (False, True)]
    first, second = results
    assert type(first) is type(second)
    if isinstance(first, Exception):
        raise first
    assert isinstance(second, list)
    np.testing.assert_array_equal(first[0], second[0])
    return first


def _outcome(model: compiler.Executable, inputs: tuple[Array, ...]) -> list[Array] | Exception:
    try:
        return model.run(list(inputs))
    except ValueError as error:
        return error


# ---------------------------------------------------------------------- arguments
def test_an_argument_of_another_width(tmp_path: Path) -> None:
    text = branch("n, m", "s, 4", "s, 4", "n, 4", "s, ")
    assert assumed_by(text)["main"] == ["4 == m"]
    module, context = checked(text)
    inputs = floats(2, 4), floats(1, 1), TRUE
    np.testing.assert_array_equal(run(module, context, *inputs)[0], inputs[0])
    np.testing.assert_array_equal(on_cpu(text, tmp_path, *inputs)[0], inputs[0])
    with pytest.raises(SizeError, match="4 == m"):
        on_cpu(text, tmp_path, floats(2, 3), floats(1, 1), TRUE)


def test_a_size_that_two_arguments_name(tmp_path: Path) -> None:
    """The first one binds it; the others must agree."""
    text = branch("n, m", "h, w", "h, w", "h, w")
    assert assumed_by(text)["main"] == ["n == h", "m == w"]
    inputs = floats(2, 4), floats(2, 4), TRUE
    assert on_cpu(text, tmp_path, *inputs)[0].shape == (2, 4)
    with pytest.raises(SizeError):
        on_cpu(text, tmp_path, floats(2, 3), floats(2, 4), TRUE)


def test_buffers_of_other_ranks() -> None:
    text = branch("n, m", "s, 4", "s, 4", "n, 4", "s, ").replace("(%x, %y) buffers", "(%x) buffers")
    with pytest.raises(PassError, match="calls @f, whose buffers differ"):
        checked(text)
    other = branch("n, m", "s, 4", "s, 4", "n, 4", "s, ").replace(
        "@f(%x: f32[s, 4], %y: f32", "@f(%x: f32[s, 4], %y: i32")
    with pytest.raises(PassError, match="calls @f, whose buffers differ"):
        checked(other)


# ---------------------------------------------------------------------- results
def test_a_result_of_other_dims(tmp_path: Path) -> None:
    text = branch("n, m", "s, t", "s, t", "n, 5", "s, t, ")
    assert assumed_by(text)["main"] == ["_given0 == 5"]
    inputs = floats(2, 5), floats(1, 1), TRUE
    assert on_cpu(text, tmp_path, *inputs)[0].shape == (2, 5)
    with pytest.raises(SizeError, match="== 5"):
        on_cpu(text, tmp_path, floats(2, 3), floats(1, 1), TRUE)


# ---------------------------------------------------------------------- loops
def test_a_body_that_returns_other_dims(tmp_path: Path) -> None:
    text = loop("n, m", "h, w", "n, m")
    found = assumed_by(text)
    assert sorted(found["f"]) == ["m == w", "n == h"]
    inputs = floats(2, 3), floats(2, 3) + 1
    np.testing.assert_array_equal(on_cpu(text, tmp_path, *inputs)[0], inputs[1])
    with pytest.raises(SizeError):
        on_cpu(text, tmp_path, floats(2, 3), floats(1, 3))


def test_a_size_that_varies(tmp_path: Path) -> None:
    """What the first dim is may differ from call to call, and is then what a call says."""
    text = loop("s, m", "h, w", "r, m")
    assert assumed_by(text) == {"main": [], "f": ["m == w"]}
    assert on_cpu(text, tmp_path, floats(2, 3), floats(5, 3))[0].shape == (5, 3)
    with pytest.raises(SizeError, match="m == w"):
        on_cpu(text, tmp_path, floats(2, 3), floats(5, 2))


def test_a_varying_size_that_stands_twice(tmp_path: Path) -> None:
    text = loop("s, s", "h, w", "r, r")
    found = assumed_by(text)
    assert found["f"] == ["h == w"]
    assert "n == m" in found["main"]
    assert on_cpu(text, tmp_path, floats(2, 2), floats(3, 3))[0].shape == (3, 3)
    for other in (floats(2, 3), floats(3, 3)), (floats(2, 2), floats(3, 1)):
        with pytest.raises(SizeError):
            on_cpu(text, tmp_path, *other)


def test_a_loop_that_stops_early(tmp_path: Path) -> None:
    """As many entries are stacked as there were calls, not as many as there may be."""
    text = """
  host.func @main(%go: i1[], %x: f32[4]) inputs ["go", "x"] outputs ["r": f32[5, 4]] sizes()
      arena(0) {
    %r = strata.loop @f at k trip 5 while %go carried() with(%go, %x) buffers f32[5, 4]
    host.return %r
  }
  host.func @f(%go: i1[], %x: f32[4]) inputs ["go", "x"] outputs ["on": i1[], "y": f32[4]]
      sizes(k) arena(0) {
    %on = host.alloc : i1[]
    host.copy %go, %on
    %y = host.alloc : f32[4]
    host.copy %x, %y
    host.return %on, %y
  }
"""
    assert assumed_by(text)["main"] == ["_given0 == 5"]
    assert on_cpu(text, tmp_path, TRUE, floats(4))[0].shape == (5, 4)
    with pytest.raises(SizeError, match="_given0 = 0"):
        on_cpu(text, tmp_path, np.array(False), floats(4))
