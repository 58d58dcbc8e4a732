"""How a program asks an x86-64 processor whether it has an instruction set.

Sources: Intel's and AMD's manuals on the instruction CPUID.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

_EBX, _ECX, _EDX, _EAX = 1, 2, 3, 0
_BITS: dict[str, tuple[int, int, int, int]] = {
    "sse": (1, 0, _EDX, 25), "sse2": (1, 0, _EDX, 26), "ssse3": (1, 0, _ECX, 9),
    "sse4_1": (1, 0, _ECX, 19), "sse4_2": (1, 0, _ECX, 20), "movbe": (1, 0, _ECX, 22),
    "popcnt": (1, 0, _ECX, 23), "pclmulqdq": (1, 0, _ECX, 1), "aes": (1, 0, _ECX, 25),
    "avx": (1, 0, _ECX, 28), "f16c": (1, 0, _ECX, 29), "fma": (1, 0, _ECX, 12),
    "bmi1": (7, 0, _EBX, 3), "avx2": (7, 0, _EBX, 5), "bmi2": (7, 0, _EBX, 8),
    "adx": (7, 0, _EBX, 19), "sha_ni": (7, 0, _EBX, 29), "avx512f": (7, 0, _EBX, 16),
    "avx512dq": (7, 0, _EBX, 17), "avx512ifma": (7, 0, _EBX, 21), "avx512cd": (7, 0, _EBX, 28),
    "avx512bw": (7, 0, _EBX, 30), "avx512vl": (7, 0, _EBX, 31), "avx512vbmi": (7, 0, _ECX, 1),
    "avx512_vbmi2": (7, 0, _ECX, 6), "gfni": (7, 0, _ECX, 8), "vaes": (7, 0, _ECX, 9),
    "vpclmulqdq": (7, 0, _ECX, 10), "avx512_vnni": (7, 0, _ECX, 11),
    "avx512_bitalg": (7, 0, _ECX, 12), "avx512_vpopcntdq": (7, 0, _ECX, 14),
    "avx512_vp2intersect": (7, 0, _EDX, 8), "amx_bf16": (7, 0, _EDX, 22),
    "avx512_fp16": (7, 0, _EDX, 23), "amx_tile": (7, 0, _EDX, 24), "amx_int8": (7, 0, _EDX, 25),
    "avx_vnni": (7, 1, _EAX, 4), "avx512_bf16": (7, 1, _EAX, 5), "amx_fp16": (7, 1, _EAX, 21),
    "avx_ifma": (7, 1, _EAX, 23), "avx_vnni_int8": (7, 1, _EDX, 4),
    "avx_ne_convert": (7, 1, _EDX, 5), "amx_complex": (7, 1, _EDX, 8),
    "avx_vnni_int16": (7, 1, _EDX, 10), "abm": (0x80000001, 0, _ECX, 5),
    "sse4a": (0x80000001, 0, _ECX, 6)}
"""For each instruction set, as Linux names it: leaf, subleaf, register and bit of CPUID."""
_VECTORS, _WIDE, _MATRICES = 0x6, 0xE0, 0x60000
"""The parts of the processor's state that the system must save for wide registers (XCR0)."""


def unknown_sets(needs: Sequence[str]) -> list[str]:
    """Those instruction sets for which a program cannot ask."""
    return [name for name in needs if name not in _BITS]


_AUXILIARY: Mapping[str, Mapping[str, tuple[str, int]]] = {
    "aarch64": {"fullfp16": ("AT_HWCAP", 10), "dotprod": ("AT_HWCAP", 20),
                "i8mm": ("AT_HWCAP2", 13), "bf16": ("AT_HWCAP2", 14),
                "sve256": ("AT_HWCAP", 22)},
    "riscv64": {"v": ("AT_HWCAP", ord("v") - ord("a"))}}
"""For each architecture and feature the word of Linux's auxiliary vector, and the bit in it."""


_MORE: Mapping[str, str] = {"sve256": "(prctl(51) & 0xFFFF) >= 32"}
"""What else must hold, in C: 51 asks for the bytes of a scalable vector (PR_SVE_GET_VL)."""


def auxiliary_needs(features: Collection[str], architecture: str) -> list[str]:
    """The features of code for which a program asks the system, which are not on x86-64."""
    return sorted(set(features) & set(_AUXILIARY.get(architecture, ())))


def features_text(needs: Sequence[str], architecture: str) -> list[str]:
    """The C function that says whether the processor has the instruction sets."""
    if architecture != "x86_64":
        return _auxiliary_text(needs, _AUXILIARY.get(architecture, {}))
    state = _VECTORS * any(n.startswith(("avx", "f16c", "fma")) for n in needs) | _WIDE * any(
        n.startswith("avx512") for n in needs) | _MATRICES * any(
        n.startswith("amx") for n in needs)
    rows = [f"        {{{leaf:#x}, {sub}, {register}, {bit}}}, /* {name} */"
            for name in needs for leaf, sub, register, bit in [_BITS[name]]]
    return ["static int has_features(void) {", "    static const uint32_t wanted[][4] = {", *rows,
            "    };", "    return has_instructions(wanted, (int)(sizeof wanted / sizeof *wanted), "
            f"{state:#x});", "}"]


def _auxiliary_text(needs: Sequence[str], bits: Mapping[str, tuple[str, int]]) -> list[str]:
    """Only Linux is asked; code for other systems says nothing of its processor."""
    rows = [f"    if (!(getauxval({word}) >> {bit} & 1)) return 0; /* {name} */"
            for name in needs for word, bit in [bits[name]]]
    rows += [f"    if (!({_MORE[name]})) return 0; /* {name} */" for name in needs if name in _MORE]
    return ["static int has_features(void) {", "#if defined(__linux__)", *rows, "#endif",
            "    return 1;", "}"]
