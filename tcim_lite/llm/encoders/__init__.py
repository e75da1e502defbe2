"""Encoders of texts that were compiled from ONNX: embedding models, cross encoders and classifiers (docs/serving.md).

`EncoderPackage.open(folder)` finds one, `Encoder` runs it, and `EncoderEngine` queues texts for it. numpy is enough;
the tokens come from the caller's tokenizer.

>>> encoder = Encoder(EncoderPackage.open("OUT"))                                           # doctest: +SKIP
>>> vector, = encoder.run([token_ids])                                                      # doctest: +SKIP
"""

from .encoder import Encoder
from .engine import EncoderEngine, EncoderSlots
from .facts import EncoderFacts
from .package import EncoderPackage
from .pooling import pooled
from .prompt import EncoderPrompt

__all__ = ["Encoder", "EncoderEngine", "EncoderFacts", "EncoderPackage", "EncoderPrompt", "EncoderSlots", "pooled"]
