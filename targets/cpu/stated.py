"""What the CPU target states to passes about the machine that the options allow."""

from __future__ import annotations

from dataclasses import replace

from dialects.graph.filter_gradient import ConvFilterGradientOp
from dialects.strata.types import bf16, byte_width, f16, f64, i64
from passes.contract import Caches, Facts
from targets.cpu.driver.sorting import LONGEST_ROW
from targets.cpu.machine import Machine, best_of, machine_of
from targets.cpu.scheduling.rows import CHANNELS
from targets.options import TargetOptions


def facts_of(options: TargetOptions, default: Facts) -> Facts:
    """The facts of the machine that the options allow."""
    machine = machine_allowed(options)
    _, second, third = machine.caches
    return replace(
        default, narrow_factors=machine.narrow_factors(options.precision),
        narrow_channels=machine.vector_bytes // byte_width(bf16),  # those fill a vector
        byte_factors=machine.byte_factors,
        claims=(ConvFilterGradientOp.name,), claimed_channels=CHANNELS,  # which lie in lanes
        unclaimed_elements=frozenset(t for t in (f16, bf16) if machine.multiplies_matrices(t)),
        bounds_walks=True,  # all heads and layers share the search
        coded_rows=2, blocked_rows=2, coded_growth=4,  # f32; arithmetic bounds more rows
        widens=frozenset(t for t in (f16, bf16) if not (
            machine.multiplies_groups(t) or machine.multiplies_matrices(t))),
        row_memory=max(second, third // 4),  # in the L2 cache, or in a share of the L3 cache
        chained_bytes=second,
        phases=True, channels_last=True, scans=f64,
        sorted_bytes=byte_width(i64) * LONGEST_ROW if options.check is not True else 0,
        sorts_alone=options.check is not True,  # which checks single elements
        prefetches=Caches(machine.line_bytes, second))


def machine_allowed(options: TargetOptions) -> Machine:
    """The machine with the features that the options allow."""
    machine = machine_of(options.features, options.triple)
    if options.beside and (best := best_of(options.beside, options.triple)) != machine:
        machine = replace(machine, packed_for=best)
    return machine if options.denormals == "flush" else machine.keeping_denormals
