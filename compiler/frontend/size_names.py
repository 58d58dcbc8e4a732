"""The names that a model gives to sizes, and the symbols that stand for them.

    batch size    ->    batch_size
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dialects.syntax import size_symbol


@dataclass
class SizeNames:
    """The size symbols of a model: each of its names has one symbol of its own."""

    symbols: dict[str, str] = field(default_factory=dict[str, str])

    def symbol(self, name: str) -> str:
        """The symbol of a name, made legal and distinct from all others."""
        if name not in self.symbols:
            wanted = clean = size_symbol(name)
            taken, count = set(self.symbols.values()), 2
            while clean in taken:
                clean, count = f"{wanted}_v{count}", count + 1
            self.symbols[name] = clean
        return self.symbols[name]

    @property
    def changed(self) -> dict[str, str]:
        """Symbol -> the model's own name, where the two differ."""
        return {symbol: name for name, symbol in self.symbols.items() if symbol != name}
