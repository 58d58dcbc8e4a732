"""Compilation of Triton source to cubins."""
