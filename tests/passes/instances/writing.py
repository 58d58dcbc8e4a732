"""What instances are written with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

DIMS = ("n", "m", "1", "2", "3", "5", "7", "16")
FLOATS, INTEGERS = ("f32", "f64", "f16", "bf16"), ("i8", "i16", "i32", "i64")


@dataclass(frozen=True)
class Instance:
    """A module, the passes that have the rule, and how far results may be off."""

    text: str
    passes: str = "graph-simplify"
    tolerance: float = 0.0
    target: str = ""
    precision: str = "f32"


@dataclass
class Draw:
    """Random choices, and types."""

    source: Random

    def of(self, *items: str) -> str:
        return self.source.choice(items)

    def dims(self, low: int = 0, high: int = 4) -> list[str]:
        return [self.of(*DIMS) for _ in range(self.source.randint(low, high))]

    def long(self, count: int) -> list[str]:
        """Dims of more than one element."""
        return [self.of("n", "m", "2", "3", "5", "7") for _ in range(count)]

    def integer(self, low: int, high: int) -> int:
        return self.source.randint(low, high)

    def number(self) -> str:
        return self.of("0.5", "-1.25", "3.0", "0.75", "-2.0")


def type_(element: str, dims: Sequence[object]) -> str:
    return f"{element}[{', '.join(map(str, dims))}]"


def scalar(name: str, number: str, element: str) -> str:
    return f"%{name} = graph.constant {{value = literal[{number}]}} : {element}[]"


def literal(name: str, numbers: Sequence[object], type_text: str) -> str:
    text = ", ".join(map(str, numbers))
    return f"%{name} = graph.constant {{value = literal[{text}]}} : {type_text}"


def function(inputs: dict[str, str], lines: Sequence[str], result: str, result_type: str) -> str:
    """A module of one function, whose result is `%result`."""
    arguments = ", ".join(f"%{name}: {t}" for name, t in inputs.items())
    names = ", ".join(f'"{name}"' for name in inputs)
    body = "\n".join(f"    {line}" for line in lines)
    return (f"builtin.module {{\n  strata.func @main({arguments}) -> ({result_type}) "
            f"inputs [{names}] outputs [\"{result}\"] {{\n{body}\n"
            f"    strata.return %{result}\n  }}\n}}")
