"""What runs a compiled model on a GPU: memory, streams, graphs, calls."""
