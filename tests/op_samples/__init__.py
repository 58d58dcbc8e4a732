"""Tables of small samples, one or more per operation, from which the tests of each level derive."""
