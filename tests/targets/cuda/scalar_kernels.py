"""Kernels that apply every scalar operation to the same operands, a row of the result for each."""

from __future__ import annotations

from collections.abc import Sequence

_UNARY = (
    "absf", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt", "sqrt", "rsqrt",
    "tanh", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh",
    "atanh", "floor", "ceil", "roundeven", "round", "trunc")
_BINARY = (
    "arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.maximumf", "arith.minimumf",
    "math.powf", "math.copysign", "math.atan2")
_INTEGER = (
    "addi", "subi", "muli", "divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "maxsi",
    "maxui", "minsi", "minui", "andi", "ori", "xori", "shrsi", "shrui", "shli")
_INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_FLOAT_PREDICATES = (
    "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une",
    "uno")

FLOAT_OPS = [*(f"math.{name}" for name in _UNARY), *_BINARY, "arith.negf",
             *(f"arith.cmpf {p}" for p in _FLOAT_PREDICATES)]
INTEGER_OPS = [*(f"arith.{name}" for name in _INTEGER), "math.absi",
               *(f"arith.cmpi {p}" for p in _INTEGER_PREDICATES)]


def float_kernel(element: str) -> str:
    """All of FLOAT_OPS on 256 pairs."""
    return _kernel("floats", FLOAT_OPS, element, "1.0", "0.0")


def integer_kernel(element: str) -> str:
    """All of INTEGER_OPS on 256 pairs."""
    return _kernel("integers", INTEGER_OPS, element, "1", "0")


def _kernel(name: str, ops: Sequence[str], element: str, one: str, zero: str) -> str:
    count, tile = len(ops), f"tile<256x{element}>"
    lines = "\n".join(_line(k, op, element, one, zero) for k, op in enumerate(ops))
    stores = "\n".join(f"block.store %r{k}, %y[{k}, t0]" for k in range(count))
    return f"""
block.kernel @{name}_{element}(%x: {element}[2, 256], %y: {element}[{count}, 256]) grid() sizes() {{
  %p = block.load %x[0, t0] : {tile}
  %q = block.load %x[1, t0] : {tile}
  {", ".join(f"%r{k}" for k in range(count))} = block.map (%p[0], %q[0]) : {
      ", ".join([tile] * count)} {{
  ^bb0(%a: {element}, %b: {element}):
    {lines}
    block.yield {", ".join(f"%v{k}" for k in range(count))}
  }}
  {stores}
  block.yield
}}"""


def _line(k: int, op: str, element: str, one: str, zero: str) -> str:
    """The operation as `%v<k>`; a comparison selects between one and zero."""
    if " " in op:
        return (f"%c{k} = {op}, %a, %b : {element}\n%o{k} = arith.constant {one} : {element}\n"
                f"%z{k} = arith.constant {zero} : {element}\n"
                f"%v{k} = arith.select %c{k}, %o{k}, %z{k} : {element}")
    name = op.partition(".")[2]
    unary = name in (*_UNARY, "negf", "absi")
    return f"%v{k} = {op} {'%a' if unary else '%a, %b'} : {element}"
