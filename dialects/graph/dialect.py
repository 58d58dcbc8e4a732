"""The dialect `graph`, with every operation that a module of this folder defines."""

from xdsl.ir import Dialect

from dialects import graph
from dialects.registry import operations_of

Graph = Dialect("graph", operations_of(graph))
