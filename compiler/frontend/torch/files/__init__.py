"""Reads files of PyTorch, which are not trusted."""
