"""The target `products_only`: an accelerator that multiplies and does nothing else.

It claims kernels with products, with what is fused to them, and leaves all others to the
processor. NumPy stands for the device: `DEVICE` runs a kernel there, and counts how often.
"""

from dialects.host.interpret import execute_kernel
from dialects.strata.schedule import Level, Schedule
from passes.analyses.loop.kinds import is_contraction
from targets.base import Target
from targets.interpreted import LEFT, InterpretedHost, SharedScheduling, is_left, left_kernel
from targets.parts import Emission, Running, ignore_progress
from targets.walking import kernels_of


class Device:
    launches = 0

    def launch(self, kernel, buffers, sizes):
        self.launches += 1
        execute_kernel(kernel, buffers, sizes)


DEVICE = Device()


class ProductScheduling(SharedScheduling):
    def claims(self, kernel):
        return any(map(is_contraction, kernel.nests))

    def claimed_schedule(self, kernel):
        summed = {axis.name for nest in kernel.nests for axis in nest.reduce_axes}
        return Schedule(tuple(Level("loop" if a in summed else "grid", a) for a in kernel.axes))


class ProductEmission(Emission):
    def emit(self, module, level):
        return "".join(f"multiply {kernel.sym_name.data}\n" for kernel in kernels_of(module)
                       if not is_left(kernel))


class ProductRunning(Running):
    def load(self, module, weights, report=ignore_progress):
        left = {kernel.sym_name.data: left_kernel(kernel, self.options)
                for kernel in kernels_of(module) if is_left(kernel)}

        def run(kernel, buffers, sizes):
            left.get(kernel.sym_name.data, DEVICE.launch)(kernel, buffers, sizes)

        return InterpretedHost(module, weights, run)


class ProductTarget(Target):
    scheduling, emission, running = ProductScheduling, ProductEmission, ProductRunning
    schedule_options = (LEFT,)


TARGET = ProductTarget("products_only", ("commands",), "an accelerator for products")
