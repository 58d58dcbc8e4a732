"""Runs compiled models: memory, threads, calls and their checks."""
