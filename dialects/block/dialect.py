"""The dialect `block`, with every operation that a module of this folder defines."""

from xdsl.ir import Dialect

from dialects import block
from dialects.registry import operations_of

Block = Dialect("block", operations_of(block))
