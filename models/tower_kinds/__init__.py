"""Kinds of vision towers, a folder each: what a record says, which graphs there are, and how they are lowered."""
