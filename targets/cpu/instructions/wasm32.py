"""WebAssembly: no fused multiply-add, and no halves."""

from __future__ import annotations

from targets.cpu.emit.build import Builder


class Wasm32(Builder):
    """WebAssembly, with 128-bit vectors (SIMD128) or without."""

    @property
    def rounds_once(self) -> bool:
        return False

    @property
    def converts_f16(self) -> bool:
        return False
