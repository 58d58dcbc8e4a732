"""What is known of values, sizes and accesses on tiles."""
