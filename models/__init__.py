"""The compiler that turns a Hugging Face checkpoint into a package of `.hmm` files.

`families` says what the models are, one file each, and `towers` what their vision towers are; `blocks` lowers what
their layers are made of, `tower_kinds` whole towers and `sounds` encoders of sounds; `speech` has models with graphs of
their own; `gguf` shows GGUF files as checkpoints; `compiler` writes the package.

Needs numpy and, to read checkpoints, the extra ``tcim-lite[compile]``; never the compiled core.
"""
