"""Vectors under vLLM: those of `tcim-lite serve` and of transformers."""

import numpy as np
import pytest
import torch
from live_fixtures import CHECKPOINT, GREEDY, compile_demo, post, served
from transformers import AutoModel
from vllm import LLM, PoolingParams

from tcim_lite.llm.engine.slots import Slots


@pytest.fixture(scope="session")
def embedding(tmp_path_factory):
    return compile_demo(tmp_path_factory.mktemp("vectors"), "--hidden-states", "--quant", "float32")


@pytest.fixture(scope="session")
def hidden(embedding, prompts):
    """States of each prompt's last token, [prompts, H]."""
    slots, found = Slots.open(embedding), []
    for prompt in prompts:
        slots.tokens[0] = []
        for begin in range(0, len(prompt), slots.chunk_length):
            row = slots.prefill(0, prompt[begin : begin + slots.chunk_length])
        found.append(row.astype(np.float32))
    return np.stack(found)


@pytest.fixture(scope="session")
def embedder(embedding):
    return LLM(model=str(embedding), seed=0, hf_overrides={"is_matryoshka": True})


def asked(prompts):
    return [{"prompt_token_ids": prompt} for prompt in prompts]


def vectors(outputs):
    return np.array([out.outputs.embedding for out in outputs], np.float32)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_vectors_are_the_states_of_the_last_token(embedder, prompts, hidden):
    found = vectors(embedder.embed(asked(prompts), use_tqdm=False))  # more than slots, some in several chunks
    np.testing.assert_allclose(found, unit(hidden), rtol=1e-6, atol=1e-7)


def test_vectors_are_those_of_transformers(embedder, prompts):
    model = AutoModel.from_pretrained(CHECKPOINT, dtype=torch.float32)
    with torch.no_grad():
        want = [model(torch.tensor([prompt])).last_hidden_state[0, -1].numpy() for prompt in prompts]
    found = vectors(embedder.embed(asked(prompts), use_tqdm=False))
    np.testing.assert_allclose(found, unit(np.stack(want)), atol=2e-3)


def test_they_may_be_shorter_and_of_any_size(embedder, prompts, hidden):
    short = embedder.embed(asked(prompts[:3]), pooling_params=PoolingParams(dimensions=16), use_tqdm=False)
    np.testing.assert_allclose(vectors(short), unit(hidden[:3, :16]), rtol=1e-6, atol=1e-7)
    raw = embedder.embed(asked(prompts[:3]), pooling_params=PoolingParams(use_activation=False), use_tqdm=False)
    np.testing.assert_array_equal(vectors(raw), hidden[:3])


def test_scores_are_cosines(embedder):
    first, second = "What is 12 + 30?", "Hello, who are you?"
    one, other = vectors(embedder.embed([first, second], use_tqdm=False))
    (score,) = embedder.score(first, second, use_tqdm=False)
    assert score.outputs.score == pytest.approx(float(one @ other), abs=1e-4)


def test_over_http(embedding, prompts, hidden):
    with served(str(embedding)) as base:
        made = post(f"{base}/v1/embeddings", {"model": str(embedding), "input": prompts[:3]})
    found = np.array([each["embedding"] for each in made["data"]], np.float32)
    np.testing.assert_allclose(found, unit(hidden[:3]), rtol=1e-5, atol=1e-6)


def test_a_package_of_logits_makes_no_vectors(package):
    with pytest.raises(Exception, match=r"give logits, no vectors; .*--hidden-states"):
        LLM(model=str(package), runner="pooling")


def test_a_package_of_vectors_writes_no_text(embedder, embedding, prompts):
    with pytest.raises(Exception, match="runner"):
        embedder.generate(asked(prompts[:1]), GREEDY, use_tqdm=False)
    with pytest.raises(Exception, match="--runner pooling"):
        LLM(model=str(embedding), runner="generate")


def test_another_pooling_is_refused(embedding):
    with pytest.raises(Exception, match="seq_pooling_type=MEAN"):
        LLM(model=str(embedding), pooler_config={"seq_pooling_type": "MEAN"})
