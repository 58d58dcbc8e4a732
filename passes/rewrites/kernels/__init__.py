"""Rewrites of nests that several passes share."""
