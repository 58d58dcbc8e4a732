"""Complex numbers as two values of reals."""

from __future__ import annotations

from typing import Any, cast

from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.fourier import Spectrum
from compiler.frontend.torch.node import Node
from compiler.frontend.values import Value
from dialects.symbolic.expr import Expr


class Complex(Spectrum):
    """Real and imaginary parts, of one shape and one element type of floats."""

    @staticmethod
    def of_view(view: Value) -> Complex:
        """The numbers that `torch.view_as_real` shows as [..., 2]."""
        last = view.rank - 1
        return Complex(*(view.part(last, k, 1).reshape(view.shape[:-1]) for k in (0, 1)))

    def view(self) -> Value:
        """The numbers as `torch.view_as_real` shows them: [..., 2]."""
        column = [*self.re.shape, 1]
        return f.concat([self.re.reshape(column), self.im.reshape(column)], axis=self.re.rank)

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.re.shape

    @property
    def rank(self) -> int:
        return self.re.rank

    def cast(self, element: Attribute) -> Complex:
        return Complex(self.re.cast(element), self.im.cast(element))

    def __neg__(self) -> Complex:
        return Complex(-self.re, -self.im)

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.re - other.re, self.im - other.im)

    def __mul__(self, other: Complex) -> Complex:
        return Complex(self.re * other.re - self.im * other.im,
                       self.re * other.im + self.im * other.re)

    def times(self, factor: Value | float) -> Complex:
        """Both parts times a real."""
        return Complex(self.re * factor, self.im * factor)

    def conjugate(self) -> Complex:
        return Complex(self.re, -self.im)


def complex_of(n: Node, value: Any, element: Attribute) -> Complex:
    """A tensor or number, real or complex, in an element type."""
    if isinstance(value, Complex):
        return value.cast(element)
    if isinstance(value, Value):
        real = value.cast(element)
        return Complex(real, n.scalar(0.0, element).broadcast(real.shape))
    if isinstance(value, Expr):
        return Complex(n.scalar(value, element), n.scalar(0.0, element))
    number = complex(value)
    return Complex(n.scalar(number.real, element), n.scalar(number.imag, element))


def is_complex(value: Any) -> bool:
    """Whether an argument of an operator is complex, or a list with a complex entry."""
    if isinstance(value, list):
        return any(map(is_complex, cast("list[Any]", value)))
    return isinstance(value, Complex | complex)


def taken_apart(value: Any, imaginary: bool) -> Any:
    """An argument with the real or the imaginary part of each complex value in it."""
    if isinstance(value, list):
        return [taken_apart(v, imaginary) for v in cast("list[Any]", value)]
    if isinstance(value, Complex | complex):
        re, im = (value.re, value.im) if isinstance(value, Complex) else (value.real, value.imag)
        return im if imaginary else re
    return value


def is_complex_tensor(meta: Any) -> bool:
    """Whether what PyTorch knows of a value says that it is a complex tensor."""
    return hasattr(meta, "dtype") and meta.dtype.is_complex


def as_given(value: Any, tensor: Any) -> Any:
    """An argument or constant as importers take it: reals [..., 2] as complex numbers if it is of
    these."""
    return Complex.of_view(value) if is_complex_tensor(tensor) else value
