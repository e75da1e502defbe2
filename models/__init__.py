"""Compilers that turn a Hugging Face checkpoint into a package of `.hmm` files.

Needs numpy and, to read checkpoints, the extra ``tcim-lite[compile]``; never the compiled core.
"""
