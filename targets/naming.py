"""Names in generated code: legal in its language, and each used once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dialects.symbolic.symbol import quoted


class Names:
    """The names of one scope, none of them `reserved`; `clean` makes any text a legal name."""

    def __init__(self, clean: Callable[[str], str], reserved: Iterable[str] = ()) -> None:
        self.clean = clean
        self.used: set[str] = {*reserved}

    def fresh(self, hint: str) -> str:
        """`hint` as a legal name, with a number appended if it is already used."""
        base = self.clean(hint)
        name, count = base, 1
        while name in self.used:
            count += 1
            name = f"{base}_{count}"
        self.used.add(name)
        return name


def one_line(names: Iterable[str]) -> str:
    """Distinct names for a comment, on one line, with the escapes of the text of levels."""
    return quoted(", ".join(dict.fromkeys(names)))[1:-1]
