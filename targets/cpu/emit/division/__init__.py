"""Divisions of floats that do without LLVM's: by values that lanes share, and by known numbers."""
