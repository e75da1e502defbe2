"""Where two runs of the same calls begin to differ ([docs/diff.md](../../docs/diff.md)).

`dump` runs a package and writes what it reads, computes and returns; `diff` compares two such folders and runs cuts of
the graph. An extension: the vendor's API has no taps.
"""
