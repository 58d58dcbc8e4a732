"""Variants of kernels: what they know of sizes, and which are compiled before calls need them."""
