"""The compiler that turns a Hugging Face checkpoint into a package of `.hmm` files.

`families` says what the models are, one file each; `blocks` lowers what their layers are made of; `gguf` shows GGUF
files as checkpoints; `compiler` writes the package.

Needs numpy and, to read checkpoints, the extra ``tcim-lite[compile]``; never the compiled core.
"""
