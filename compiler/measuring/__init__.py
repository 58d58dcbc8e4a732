"""Contests between runtimes."""
