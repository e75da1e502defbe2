"""The compiler that turns a Hugging Face checkpoint or an ONNX file into a package of `.hmm` files.

What models are: `families`, one record each (`family.py`, `contract.py`), with their vision `towers` and their encoders
of `sounds`; `speech` has models with graphs of their own.
How they become ops: `blocks` lowers layers and `tower_kinds` whole towers into `graphs`; `onnx` lowers networks.
What fills them: `checkpoints` reads tensors, and `weights` quantises and packs them.
`compiler` writes the package; `reference` is the oracle of the tests.

Needs numpy and, to read checkpoints, the extra ``tcim-lite[compile]``; never the compiled core.
"""
