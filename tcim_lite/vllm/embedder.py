"""Steps of requests that ask for vectors: the hidden states of the last token, as `tcim-lite serve` gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from vllm.v1.outputs import ModelRunnerOutput

from .runner import Runner


class Embedder(Runner):
    """A `Runner` over a package of `compile --hidden-states`."""

    def pool(self) -> Any:
        """After `run`, a vector for each request whose tokens have all been run, as vLLM's `ModelRunnerOutput`."""
        names = list(self._batch.req_ids)
        rows = zip(names, self._rows, self._sampled, strict=True)
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index=dict(self._batch.req_id_to_index),
            pooler_output=[
                vector_of(row, self._requests[name].pooling_params) if is_done else None for name, row, is_done in rows
            ],
        )


def vector_of(hidden: np.ndarray, params: Any) -> torch.Tensor:
    """Hidden states [H] as a vector of the length that `PoolingParams` ask for, float32, and of size 1 if they do."""
    vector = hidden[: params.dimensions].astype(np.float32)
    if params.use_activation is not False:
        vector /= max(float(np.linalg.norm(vector)), 1e-12)
    return torch.from_numpy(vector)
