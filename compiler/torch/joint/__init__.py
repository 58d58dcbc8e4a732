"""What is changed in a joint graph and in the forward and the backward graph that it becomes."""
