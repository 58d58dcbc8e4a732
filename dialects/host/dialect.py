"""The dialect `host`, with every operation that a module of this folder defines."""

from xdsl.ir import Dialect

from dialects import host
from dialects.registry import operations_of

Host = Dialect("host", operations_of(host))
