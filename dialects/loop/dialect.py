"""The dialect `loop`, with every operation that a module of this folder defines."""

from xdsl.ir import Dialect

from dialects import loop
from dialects.loop.axes import AxesAttr
from dialects.registry import operations_of

Loop = Dialect("loop", operations_of(loop), [AxesAttr])
