"""Encoders compiled from ONNX behind the routes of vLLM and Text Embeddings Inference, against transformers."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")
pytest.importorskip("onnx", reason="compiles ONNX")

import huggingface_hub
from encoder_packages import ENCODERS, make_encoder

TEXTS = [
    "what is the capital of france?",
    "paris",
    "london is a big city, in rain.",
    "12 plus 30 is 42. " * 6,
    "a bear is good",
]
BOUND = 2e-5  # of float32 numbers whose sums are made in other orders


def asked(server, path: str, **body):
    done = server.post(path, json=body)
    assert done.status_code == 200, done.text
    return done.json()


def refused(server, path: str, **body) -> dict:
    done = server.post(path, json=body)
    assert 400 <= done.status_code < 500, done.text
    return {"status": done.status_code, **done.json()["error"]}


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector.astype(np.float64))


POOLED = {
    "cls_token": lambda rows: rows[0],
    "mean_tokens": lambda rows: rows.mean(axis=0),
    "max_tokens": lambda rows: rows.max(axis=0),
    "lasttoken": lambda rows: rows[-1],
    "mean_sqrt_len_tokens": lambda rows: rows.sum(axis=0) / len(rows) ** 0.5,
    "weightedmean_tokens": lambda rows: np.average(rows, axis=0, weights=np.arange(1, len(rows) + 1)),
}
POOLING_OF = dict(zip(ENCODERS, POOLED, strict=False))


@pytest.fixture(scope="module", params=ENCODERS)
def embedder(request, tmp_path_factory, start):
    folder, kind = tmp_path_factory.mktemp(request.param), request.param
    made = make_encoder(folder / "hf", kind, pooling=POOLING_OF[kind])
    package = made.compile(folder / "out", "--name", "tiny", "--lengths", "8,24,64", "--batch", "2")
    return made, POOLED[POOLING_OF[kind]], start(folder=package)


def test_embeddings_are_those_of_transformers(embedder):
    model, pool, server = embedder
    vectors = asked(server, "/v1/embeddings", input=TEXTS, model="tiny")
    raw = asked(server, "/embed", inputs=TEXTS, normalize=False)
    assert asked(server, "/embed", inputs=TEXTS) == [item["embedding"] for item in vectors["data"]]
    for text, item, row in zip(TEXTS, vectors["data"], raw, strict=True):
        want = pool(model.hidden(text))
        np.testing.assert_allclose(row, want, atol=BOUND * np.abs(want).max())
        np.testing.assert_allclose(item["embedding"], unit(want), atol=BOUND)
    assert vectors["usage"]["prompt_tokens"] == sum(len(model.tokenizer.encode(text).ids) for text in TEXTS)
    with server.client() as client:
        made = client.embeddings.create(model="tiny", input=TEXTS[0])
        np.testing.assert_allclose(made.data[0].embedding, vectors["data"][0]["embedding"], atol=1e-7)
    tokens = model.tokenizer.encode(TEXTS[2]).ids
    assert asked(server, "/v1/embeddings", input=tokens)["data"][0]["embedding"] == vectors["data"][2]["embedding"]


def test_a_text_has_the_same_vector_whatever_is_asked_beside_it(embedder):
    _, _, server = embedder
    together = asked(server, "/embed", inputs=TEXTS * 3)
    assert together == [asked(server, "/embed", inputs=[text])[0] for text in TEXTS] * 3


def test_clients_of_the_hub_ask_one_route_for_all(embedder):
    _, _, server = embedder
    client = huggingface_hub.InferenceClient(server.url)
    want = asked(server, "/embed", inputs=TEXTS[0])
    np.testing.assert_allclose(client.feature_extraction(TEXTS[0]), want, atol=1e-7)
    about = server.get("/info").json()
    assert (about["model_id"], about["max_input_length"]) == ("tiny", 64)
    assert list(about["model_type"]) == ["embedding"]


def test_long_texts_are_refused_or_cut(embedder):
    model, pool, server = embedder
    long = "rain " * 100
    said = refused(server, "/v1/embeddings", input=long)
    assert said["status"] == 400
    assert "102 tokens" in said["message"]
    assert "64" in said["message"]
    assert "--lengths" in said["message"]
    cut = asked(server, "/embed", inputs=long, truncate=True)[0]
    np.testing.assert_allclose(cut, unit(pool(model.hidden("rain " * 62))), atol=BOUND)


def test_an_embedding_model_ranks_by_cosines(embedder):
    model, pool, server = embedder
    vectors = [unit(pool(model.hidden(text))) for text in TEXTS]
    want = [float(vectors[0] @ vector) for vector in vectors[1:]]
    found = asked(server, "/v1/rerank", query=TEXTS[0], documents=TEXTS[1:])["results"]
    assert [item["index"] for item in found] == list(np.argsort(-np.array(want), kind="stable"))
    for item in found:
        assert abs(item["relevance_score"] - want[item["index"]]) < 2 * BOUND


def test_an_encoder_writes_no_text(embedder):
    _, _, server = embedder
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/responses", {"input": "hi"}),
    ):
        said = refused(server, path, **body)
        assert said["status"] == 404
        assert "encoder" in said["message"]
    assert refused(server, "/predict", inputs="paris")["status"] == 404


def test_the_server_tells_of_itself(embedder):
    _, _, server = embedder
    listed = server.get("/v1/models").json()["data"][0]
    assert (listed["id"], listed["max_model_len"]) == ("tiny", 64)
    assert server.get("/health").status_code == 200
    assert len(server.get("/slots").json()) == 2
    assert server.metric("tcim:request_success_total") > 0
    count = asked(server, "/tokenize", prompt=TEXTS[0])["count"]
    assert asked(server, "/detokenize", tokens=asked(server, "/tokenize", prompt=TEXTS[0])["tokens"])["content"]
    assert count > 5


@pytest.fixture(scope="module", params=["bert", "xlm-roberta"])
def ranker(request, tmp_path_factory, start):
    folder = tmp_path_factory.mktemp("ranker")
    config = {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}
    made = make_encoder(folder / "hf", request.param, labels=1, **(config if request.param == "bert" else {}))
    return made, request.param, start(folder=made.compile(folder / "out", "--lengths", "16,64", "--batch", "4"))


def test_a_cross_encoder_ranks_as_transformers(ranker):
    model, kind, server = ranker
    query, documents = TEXTS[0], TEXTS[1:]
    logits = np.array([model.hidden(query, text)[0] for text in documents], np.float64)
    sigmoids = 1 / (1 + np.exp(-logits))
    bound = BOUND * max(1, np.abs(logits).max())
    order = list(np.argsort(-logits, kind="stable"))
    # vLLM's form has the activation of the config; that of Text Embeddings Inference a sigmoid or none.
    shown = logits if kind == "bert" else sigmoids
    found = asked(server, "/v1/rerank", query=query, documents=documents)["results"]
    assert [item["index"] for item in found] == order
    np.testing.assert_allclose([item["relevance_score"] for item in found], shown[order], atol=bound)
    scored = asked(server, "/v1/score", text_1=query, text_2=documents)["data"]
    np.testing.assert_allclose([item["score"] for item in scored], shown, atol=bound)
    for raw, want in ((False, sigmoids), (True, logits)):
        ranks = asked(server, "/rerank", query=query, texts=documents, raw_scores=raw)
        assert [item["index"] for item in ranks] == order
        np.testing.assert_allclose([item["score"] for item in ranks], want[order], atol=bound)
    assert np.ptp(logits) > 1e-3


def test_pairs_that_are_too_long_are_refused_or_cut(ranker):
    model, _, server = ranker
    long = "rain " * 100
    for documents in ([long], ["paris", long]):
        said = refused(server, "/v1/rerank", query=TEXTS[0], documents=documents)
        assert said["code"] == "context_length_exceeded"
    cut = asked(server, "/rerank", query=TEXTS[0], texts=[long], truncate=True, raw_scores=True)[0]["score"]
    own = len(model.tokenizer.encode(TEXTS[0], add_special_tokens=False).ids)
    special = len(model.tokenizer.encode("", "").ids)
    want = model.hidden(TEXTS[0], "rain " * (64 - own - special))[0]
    assert abs(cut - want) <= BOUND * max(1, abs(want))
    both = asked(server, "/rerank", query=long, texts=[long * 50], truncate=True, truncation_direction="left")
    assert len(both) == 1


def test_a_cross_encoder_ranks_at_the_one_route(ranker):
    _, _, server = ranker
    body = {"query": TEXTS[0], "texts": TEXTS[1:]}
    assert asked(server, "/", **body) == asked(server, "/rerank", **body)
    assert server.get("/info").json()["model_type"] == {
        "reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    }


def test_a_cross_encoder_embeds_nothing(ranker):
    _, _, server = ranker
    said = refused(server, "/v1/embeddings", input="paris")
    assert said["status"] == 404
    assert "/rerank" in said["message"]
    assert refused(server, "/embed", inputs="paris")["status"] == 404


LABELS = {"0": "bad", "1": "good", "2": "so so"}


@pytest.fixture(scope="module", params=["", "multi_label_classification"])
def classifier(request, tmp_path_factory, start):
    folder = tmp_path_factory.mktemp("classifier")
    config = {"problem_type": request.param} if request.param else {}
    made = make_encoder(folder / "hf", "distilbert", labels=3, id2label=LABELS, **config)
    replicas = ("--devices", "0,1", "--replicas", "2")
    package = made.compile(folder / "out", "--shape", "input_ids=1,64")
    return made, request.param, start(*replicas, folder=package, env={"TCIM_LITE_DEVICE_NUM": "2"})


def likely(logits: np.ndarray, kind: str) -> np.ndarray:
    logits = logits.astype(np.float64)
    return 1 / (1 + np.exp(-logits)) if kind else np.exp(logits) / np.exp(logits).sum()


def test_labels_as_text_embeddings_inference_gives_them(classifier):
    model, kind, server = classifier
    want = likely(model.hidden("a bear is good"), kind)
    found = asked(server, "/predict", inputs="a bear is good")
    assert [item["label"] for item in found] == [LABELS[str(index)] for index in np.argsort(-want)]
    np.testing.assert_allclose([item["score"] for item in found], np.sort(want)[::-1], atol=BOUND)
    assert asked(server, "/predict", inputs=["a bear is good"]) == found
    assert asked(server, "/predict", inputs=[["a bear is good"]]) == [found]
    raw = asked(server, "/predict", inputs=[["a bear", "is good"], ["paris"]], raw_scores=True)
    for items, texts in zip(raw, [("a bear", "is good"), ("paris",)], strict=True):
        scores = {item["label"]: item["score"] for item in items}
        np.testing.assert_allclose([scores[label] for label in LABELS.values()], model.hidden(*texts), rtol=1e-4)


def test_a_classifier_names_labels_at_the_one_route(classifier, server):
    _, _, own = classifier
    want = asked(own, "/predict", inputs="a bear is good")
    assert asked(own, "/", inputs="a bear is good", parameters={}) == want  # as clients of the hub send it
    said = refused(server, "/", inputs="a")
    assert (said["status"], "use /v1/chat/completions" in said["message"]) == (404, True)
    assert server.get("/info").json()["model_type"] == {"generation": {}}


def test_labels_as_vllm_gives_them(classifier):
    model, kind, server = classifier
    found = asked(server, "/classify", input=TEXTS, model="model")
    for text, item in zip(TEXTS, found["data"], strict=True):
        want = likely(model.hidden(text), kind)
        np.testing.assert_allclose(item["probs"], want, atol=BOUND)
        assert (item["label"], item["num_classes"]) == (LABELS[str(want.argmax())], 3)
    assert found["object"] == "list"


def test_a_classifier_ranks_nothing(classifier):
    _, _, server = classifier
    said = refused(server, "/rerank", query="a", texts=["b"])
    assert said["status"] == 404
    assert "/predict" in said["message"]


BAD = [
    ("/predict", {"inputs": []}),
    ("/predict", {"inputs": ["a", "b", "c"]}),
    ("/predict", {"inputs": [["a"], "b"]}),
    ("/predict", {"inputs": [["a", "b", "c"]]}),
    ("/predict", {"inputs": [[]]}),
    ("/predict", {"inputs": 5}),
    ("/predict", {"inputs": "rain " * 100}),
    ("/predict", {"inputs": [["rain " * 100, "a"]]}),
    ("/predict", {"inputs": "a", "top_k": 3}),
    ("/predict", {"inputs": "a", "model": "another"}),
    ("/classify", {"input": []}),
    ("/classify", {"input": [5000]}),
    ("/classify", {"input": [-1]}),
    ("/classify", {"input": [[]]}),
    ("/classify", {"input": None}),
    ("/classify", {"input": ["a"] * 2049}),
]


@pytest.mark.parametrize(("path", "body"), BAD)
def test_bad_input_is_refused(classifier, path, body):
    _, _, server = classifier
    assert refused(server, path, **body)["message"]


def test_empty_and_odd_texts_have_an_answer(classifier):
    _, _, server = classifier
    for text in ("", " ", "\0", "\ud7ff", "漢字", "a" * 5000):
        assert asked(server, "/predict", inputs=text, truncate=True)
