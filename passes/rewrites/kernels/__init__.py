"""Rewrites of kernels together with their calls that several passes share."""
