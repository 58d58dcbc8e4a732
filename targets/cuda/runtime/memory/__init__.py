"""Memory of a device: buffers, arenas that runs share, and results in what inputs leave."""
