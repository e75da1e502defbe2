"""What the language models of speech families share: the graph inputs and the output of the vendor's exports."""

from __future__ import annotations

from dataclasses import replace

from ...contract import Port
from . import dense

# Programs find the first input by this name. The exporter's head takes the last element of the batch, not of the rows.
CONTRACT = replace(dense.CONTRACT, shared=(Port("embeddings", "input_embeds", "inputs_embeds"),), flat_logits=True)
