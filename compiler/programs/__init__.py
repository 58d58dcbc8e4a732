"""Compiled models on disk."""
