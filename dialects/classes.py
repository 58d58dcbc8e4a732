"""Bases of our operations and attributes, for which `isinstance` asks for inheritance alone.

xDSL's are abstract base classes. For these, `isinstance` runs Python code, and the first question
about another class walks all subclasses: a compilation asks hundreds of thousands of times.
"""

from __future__ import annotations

from abc import ABCMeta
from typing import Generic, TypeVar

from xdsl.ir import Data, ParametrizedAttribute
from xdsl.irdl import IRDLOperation

T = TypeVar("T")


class PlainClass(ABCMeta):
    """The class of such classes. Others cannot be registered as their subclasses."""

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


class StrataOperation(IRDLOperation, metaclass=PlainClass):
    """An operation of ours."""


class StrataAttribute(ParametrizedAttribute, metaclass=PlainClass):
    """An attribute with parameters of ours."""

    def __post_init__(self) -> None:
        self._verify()  # xDSL's asks each attribute whether it is one


class StrataData(Data[T], Generic[T], metaclass=PlainClass):
    """An attribute with a Python value of ours."""

    def __post_init__(self) -> None:
        self._verify()
