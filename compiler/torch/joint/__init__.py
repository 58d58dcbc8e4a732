"""What is changed in a joint graph, before it is parted into a forward and a backward graph."""
