"""Analyses that passes on graph operations query."""
