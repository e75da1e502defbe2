"""/v1/rerank and /v1/score: as the model card of Qwen3-Reranker computes it, and by vectors of an embedding model."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")

from llm_packages import DEMO_CHECKPOINT, compile_package
from oracle import logit_bound, oracle_logits, random_model, torch
from sound_chats import tokenizers

from tcim_lite.models.families import FAMILIES

QUERY, DOCUMENTS = "What is 12 + 30?", ["42", "A bear.", "Reverse: 1 2 3", "A bear."]
SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the "
    'answer can only be "yes" or "no".'
)
ASKED = "Given a web search query, retrieve relevant passages that answer the query"
BEFORE = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


class Reranker:
    """A random model, whose two answers are words of its vocabulary."""

    def __init__(self, folder):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(DEMO_CHECKPOINT / "tokenizer.json"))
        self.tokenizer.add_tokens(["yes", "no"])
        self.model = random_model({**FAMILIES["qwen3"].tiny, "vocab_size": self.tokenizer.get_vocab_size()})
        self.model.save_pretrained(folder / "hf")
        self.tokenizer.save(str(folder / "hf" / "tokenizer.json"))
        shutil.copyfile(DEMO_CHECKPOINT / "tokenizer_config.json", folder / "hf" / "tokenizer_config.json")
        self.package = compile_package(
            folder / "hf", folder / "out", name="qwen3-reranker", quant="float32", batch=2, context_length=512
        )

    def score(self, query: str, document: str, asked: str = ASKED) -> tuple[float, float]:
        """By transformers, and how far off ours may be: a quarter of what two logits are, where 1/(1+e^-x) is steep."""
        tokens = []
        for text in (BEFORE, f"<Instruct>: {asked}\n<Query>: {query}\n<Document>: {document}", BEHIND):
            tokens += self.tokenizer.encode(text, add_special_tokens=False).ids
        logits = oracle_logits(self.model, tokens)[-1]
        pair = torch.tensor([logits[self.tokenizer.token_to_id(word)] for word in ("no", "yes")])
        bound = logit_bound(self.model.config) * np.abs(logits).max() / 2
        return float(torch.log_softmax(pair, 0)[1].exp()), bound


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Reranker(tmp_path_factory.mktemp("reranker"))


@pytest.fixture(scope="module")
def ranker(model, start):
    return start(folder=model.package.folder)


@pytest.fixture(scope="module")
def embedder(start):
    return start(batch=2, hidden_states=-1)


def asked(server, path: str, **body) -> dict:
    done = server.post(path, json=body)
    assert done.status_code == 200, done.text
    return done.json()


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v2/rerank", "/v1/reranking"])
def test_documents_are_ranked_as_the_model_card_does(model, ranker, path):
    found = asked(ranker, path, query=QUERY, documents=[{"text": DOCUMENTS[0]}, *DOCUMENTS[1:]], model="qwen3-reranker")
    ranks = {item["index"]: item["relevance_score"] for item in found["results"]}
    assert len(ranks) == 4
    assert list(ranks.values()) == sorted(ranks.values(), reverse=True)
    for item in found["results"]:
        assert item["document"] == {"text": DOCUMENTS[item["index"]]}
        want, bound = model.score(QUERY, DOCUMENTS[item["index"]])
        assert abs(item["relevance_score"] - want) <= bound
    assert ranks[1] == ranks[3]
    assert np.ptp(list(ranks.values())) > 1e-3
    assert found["usage"]["total_tokens"] == found["usage"]["prompt_tokens"] > 400
    assert found["model"] == "qwen3-reranker"


def test_how_many_and_what_of_them(model, ranker):
    whole = asked(ranker, "/v1/rerank", query=QUERY, documents=DOCUMENTS, top_n=0)["results"]
    some = asked(ranker, "/v1/rerank", query=QUERY, documents=DOCUMENTS, top_n=2, return_documents=False)["results"]
    assert some == [{key: item[key] for key in ("index", "relevance_score")} for item in whole[:2]]
    assert len(asked(ranker, "/v1/rerank", query=QUERY, documents=DOCUMENTS, top_n=99)["results"]) == 4
    cohere = {"max_tokens_per_doc": None, "rank_fields": ["text"], "top_n": None}  # as its clients send defaults
    assert asked(ranker, "/v2/rerank", query=QUERY, documents=DOCUMENTS, **cohere)["results"] == whole
    told = asked(ranker, "/v1/rerank", query=QUERY, documents=DOCUMENTS[:1], instruct="Find numbers.")["results"]
    want, bound = model.score(QUERY, DOCUMENTS[0], "Find numbers.")
    assert abs(told[0]["relevance_score"] - want) <= bound
    written = {"query": f"{BEFORE}<Instruct>: {ASKED}\n<Query>: {QUERY}\n"}  # as clients of vLLM write it
    same = asked(ranker, "/v1/rerank", **written, documents=[f"<Document>: {text}{BEHIND}" for text in DOCUMENTS])
    assert [item["relevance_score"] for item in same["results"]] == [item["relevance_score"] for item in whole]


def test_scores_of_pairs(model, ranker):
    for left in (QUERY, [QUERY], ["7 + 5", QUERY, "a", "b"]):
        found = asked(ranker, "/v1/score", text_1=left, text_2=DOCUMENTS)["data"]
        for index, item in enumerate(found):
            query = left if isinstance(left, str) else left[index % len(left)]
            want, bound = model.score(query, DOCUMENTS[index])
            assert (item["index"], item["object"]) == (index, "score")
            assert abs(item["score"] - want) <= bound


@pytest.mark.parametrize("names", [("data_1", "data_2"), ("queries", "documents"), ("queries", "items")])
def test_scores_by_the_other_names_of_vllm(ranker, names):
    left, right = names
    want = asked(ranker, "/v1/score", text_1=QUERY, text_2=DOCUMENTS)["data"]
    assert asked(ranker, "/score", **{left: QUERY, right: DOCUMENTS})["data"] == want
    done = ranker.post("/v1/score", json={left: [QUERY] * 3, right: DOCUMENTS})
    assert f"{left}: 3 texts for 4 of {right}" in done.json()["error"]["message"]


def test_documents_are_ranked_in_the_form_of_text_embeddings_inference(ranker):
    want = asked(ranker, "/v1/rerank", query=QUERY, documents=DOCUMENTS)["results"]
    found = asked(ranker, "/rerank", query=QUERY, texts=DOCUMENTS, raw_scores=False, return_text=False)
    assert found == [{"index": item["index"], "score": item["relevance_score"]} for item in want]
    raw = asked(ranker, "/rerank", query=QUERY, texts=DOCUMENTS, raw_scores=True, return_text=True)
    assert [item["text"] for item in raw] == [DOCUMENTS[item["index"]] for item in want]
    logits = np.array([item["score"] for item in raw])
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), [item["score"] for item in found], rtol=1e-12)
    (alone,) = asked(ranker, "/v1/rerank", query=QUERY, documents=DOCUMENTS[0])["results"]  # one text is no list
    assert alone["relevance_score"] == next(item["score"] for item in found if item["index"] == 0)


@pytest.mark.parametrize("side", ["Right", "left"])
def test_texts_are_cut_to_the_context_if_that_is_asked_for(model, ranker, side):
    words = " ".join(f"{number}," for number in range(600))
    body = {"query": QUERY, "texts": [words], "truncate": True, "truncation_direction": side}
    (found,) = asked(ranker, "/rerank", **body)
    offsets = model.tokenizer.encode(words, add_special_tokens=False).offsets
    fitting = ""
    for kept in range(1, len(offsets)):
        text = words[offsets[-kept][0] :] if side == "left" else words[: offsets[kept - 1][1]]
        prompt = f"{BEFORE}<Instruct>: {ASKED}\n<Query>: {QUERY}\n<Document>: {text}{BEHIND}"
        if len(model.tokenizer.encode(prompt, add_special_tokens=False).ids) > 511:  # one is left for the answer
            break
        fitting = text
    (whole,) = asked(ranker, "/rerank", query=QUERY, texts=[fitting])
    assert found["score"] == whole["score"]


def test_an_embedding_model_compares_vectors(embedder):
    with embedder.client() as client:
        items = client.embeddings.create(model="qwen3", input=[QUERY, *DOCUMENTS]).data
    query, *others = (np.float64(item.embedding) for item in items)
    want = [float(query @ other) for other in others]
    data = asked(embedder, "/score", text_1=QUERY, text_2=DOCUMENTS)["data"]
    np.testing.assert_allclose([item["score"] for item in data], want, rtol=0, atol=2**-22)
    results = asked(embedder, "/v1/rerank", query=QUERY, documents=DOCUMENTS)["results"]
    assert [item["index"] for item in results] == np.argsort(-np.array(want), kind="stable").tolist()


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/rerank", {"query": QUERY, "documents": []}, 400, "documents: 0 texts; expected 1 to 2048"),
        ("/v1/rerank", {"query": QUERY, "documents": [1]}, 400, "documents[0]"),
        ("/v1/rerank", {"query": QUERY, "documents": ["a"], "top_n": -1}, 400, "top_n=-1: expected 1 or more"),
        ("/v1/rerank", {"query": QUERY, "documents": ["word " * 600]}, 400, "the context holds 512"),
        ("/v1/rerank", {"query": QUERY, "documents": ["a"], "top": 1}, 400, "did you mean top_n?"),
        (
            "/v1/rerank",
            {"query": QUERY, "documents": ["a"], "max_tokens_per_doc": 9},
            400,
            "not supported; leave it out",
        ),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, 400, "text_1: 2 texts for 3 of text_2"),
        ("/v1/score", {"text_1": "a", "documents": ["a"]}, 400, "expected text_1 and text_2, or data_1 and data_2"),
        ("/v1/rerank", {"query": QUERY}, 400, "documents: missing"),
        ("/rerank", {"query": QUERY, "texts": ["a"], "documents": ["a"]}, 400, "expected one of them"),
        ("/rerank", {"query": QUERY, "texts": ["a"], "top_n": 1}, 400, "top_n: goes with documents"),
        ("/rerank", {"query": QUERY, "documents": ["a"], "truncate": True}, 400, "truncate: goes with texts"),
        ("/rerank", {"query": QUERY, "texts": ["word " * 600]}, 400, "the context holds 512"),
        ("/rerank", {"query": "word " * 600, "texts": ["a"], "truncate": True}, 400, "the context holds 512"),
        ("/embed", {"inputs": "a"}, 404, "/embed: the graphs of this package give logits"),
    ],
)
def test_what_cannot_be_ranked(ranker, path, body, status, message):
    done = ranker.post(path, json=body)
    assert (done.status_code, message in done.json()["error"]["message"]) == (status, True), done.text


def test_models_that_rank_nothing_say_which_do(server, embedder):
    done = server.post("/v1/rerank", json={"query": "a", "documents": ["b"]})
    assert done.status_code == 404
    assert "qwen3 ranks nothing. Serve a cross encoder such as bge-reranker" in done.json()["error"]["message"]
    done = embedder.post("/v1/score", json={"text_1": "a", "text_2": "b", "instruct": "c"})
    assert done.status_code == 400
    assert "texts are compared as they are" in done.json()["error"]["message"]


def test_a_tokenizer_without_both_answers_is_named(start):
    done = start("--served-model-name", "qwen3-reranker").post("/v1/rerank", json={"query": "a", "documents": ["b"]})
    assert done.status_code == 404
    assert 'the tokenizer of qwen3-reranker lacks the token "no" or "yes"' in done.json()["error"]["message"]
