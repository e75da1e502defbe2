"""A plain numpy model of a compiled package, the oracle of the tests, and its arithmetic."""
