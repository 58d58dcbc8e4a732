"""Numbers and bytes of a file, read one after another.

Numbers are MLIR's: the zeros at the end of the first byte count the bytes that follow.
"""

from __future__ import annotations

from compiler.diagnostics import Problem, StrataError

_HINT = ("write the program again, as jax.export.export(f)(*args).mlir_module_serialized, or as "
         "text: str(jax.jit(f).lower(*args).compiler_ir('stablehlo'))")


class Cursor:
    """A place in a file, which ends at `end`. `name`: the file's, for errors."""

    def __init__(self, data: bytes, name: str, at: int = 0, end: int | None = None):
        self.data, self.name, self.at = data, name, at
        self.end = len(data) if end is None else end

    def error(self, what: str, hint: str = _HINT) -> StrataError:
        return StrataError(f"{self.name} is no StableHLO bytecode that can be read", [
            Problem(what, f"byte {self.at}", hint=hint)])

    @property
    def left(self) -> int:
        return self.end - self.at

    def byte(self) -> int:
        if self.at >= self.end:
            raise self.error("the file ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def bytes(self, count: int) -> bytes:
        if count > self.left:
            raise self.error(f"the file ends too early: {count} bytes are announced, and "
                             f"{self.left} are left")
        self.at += count
        return self.data[self.at - count:self.at]

    def part(self, count: int) -> Cursor:
        """The next bytes, as a cursor of their own."""
        start = self.at
        self.bytes(count)
        return Cursor(self.data, self.name, start, start + count)

    def text(self) -> str:
        """Up to the next zero byte."""
        last = self.data.find(b"\0", self.at, self.end)
        if last < 0:
            raise self.error("a text has no end")
        found = self.data[self.at:last]
        self.at = last + 1
        return found.decode("utf-8", "replace")

    def number(self) -> int:
        first = self.byte()
        if first == 0:
            return int.from_bytes(self.bytes(8), "little")
        more = (first & -first).bit_length() - 1
        rest = int.from_bytes(self.bytes(more), "little")
        return (rest << 8 | first) >> (more + 1)

    def signed(self) -> int:
        number = self.number()
        return -(number >> 1) - 1 if number & 1 else number >> 1

    def flagged(self) -> tuple[int, bool]:
        number = self.number()
        return number >> 1, bool(number & 1)

    def count(self, what: str) -> int:
        """How many things follow. Each takes a byte at least, so the file bounds it."""
        return self.checked(self.number(), what)

    def checked(self, found: int, what: str) -> int:
        if found > self.left:
            raise self.error(f"{found} {what} are announced, and {self.left} bytes are left")
        return found

    def index(self, count: int, what: str) -> int:
        """The number of one of `count` things."""
        return self.within(self.number(), count, what)

    def within(self, found: int, count: int, what: str) -> int:
        if found >= count:
            raise self.error(f"{what} {found} is named, and there are {count}")
        return found

    def align(self, to: int) -> None:
        """Skip what lies before the next multiple, counted from the file's start."""
        if to < 1 or to & (to - 1) or to > 1 << 20:
            raise self.error(f"an alignment of {to}")
        self.bytes(-self.at % to)
