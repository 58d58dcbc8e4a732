"""Runs compiled models on a GPU: memory, streams, CUDA graphs, calls."""
