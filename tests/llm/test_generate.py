"""The loop and the sampler of tcim_lite.llm."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_packages import LoadedPackage

import tcim_lite.runtime as rt
from tcim_lite.llm import Package, Sampler, TextStream, load_pair, share_kv_cache


@pytest.fixture
def loaded(tiny_package):
    return LoadedPackage(tiny_package(prefill_length=16, context_length=64))


def test_greedy_generation_is_the_argmax_of_each_step(loaded):
    prompt = [5, 9, 200, 13]
    tokens = list(loaded.generate(prompt, max_new_tokens=6))
    logits = loaded.prefill(prompt)
    for step, token in enumerate(tokens):
        assert token == logits.argmax()
        logits = loaded.decode(token, len(prompt) + step)
    assert loaded.stats.new_tokens == 6
    assert loaded.stats.stopped_by == "max_new_tokens"


def test_generation_stops_at_a_stop_token_without_yielding_it(loaded):
    first = list(loaded.generate([5, 9], max_new_tokens=4))
    again = list(loaded.generate([5, 9], max_new_tokens=4, stop_tokens={first[2]}))
    assert again == first[: first.index(first[2])]
    assert loaded.stats.stopped_by == "eos"


def test_generation_stops_when_the_context_is_full(loaded):
    tokens = list(loaded.generate(list(range(60))))
    assert loaded.stats.stopped_by == "context"
    assert len(tokens) == 5  # four more rows, and the token that has no row to go to


def test_a_second_turn_reuses_the_cache_and_changes_nothing(loaded, tiny_package):
    first = list(loaded.generate(list(range(20)), max_new_tokens=8))
    conversation = [*range(20), *first, 3, 4, 5]
    second = list(loaded.generate(conversation, max_new_tokens=8))
    assert loaded.stats.reused_tokens == 27
    fresh = LoadedPackage(tiny_package(prefill_length=16, context_length=64))
    assert list(fresh.generate(conversation, max_new_tokens=8)) == second
    assert fresh.stats.reused_tokens == 0


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "empty"),
        (list(range(65)), "context holds 64"),
        ([0, 331], "vocabulary of 331"),
        (np.zeros((1, 3), int), r"whole numbers in one list, got array\(\[\[0, 0, 0\]\]\); of a batch"),
        ({"input_ids": [1]}, "whole numbers in one list"),
        ("Hello", "whole numbers in one list, got 'Hello'"),
        ([1.5], r"whole numbers in one list, got \[1.5\]"),
    ],
)
def test_prompts_that_cannot_be_are_refused(loaded, prompt, words):
    with pytest.raises(ValueError, match=words):
        list(loaded.generate(prompt))


def test_decode_takes_one_token_per_run_and_says_so(loaded):
    loaded.prefill([5, 9])
    loaded.decode_module.set_input("current_length", np.array([2]))
    with pytest.raises(rt.ArgumentError, match="'current_length' is 2, expected 1, the number of tokens"):
        loaded.decode_module.run(sync=True)
    loaded.decode_module.set_input("current_length", 0)  # as it is where nobody sets it
    with pytest.raises(rt.ArgumentError, match=r"'current_length' is 0, expected 1, .*; set it before run"):
        loaded.decode_module.run(sync=True)


def test_caches_of_different_packages_are_not_shared(tiny_package):
    one = LoadedPackage(tiny_package(prefill_length=16, context_length=64))
    other = LoadedPackage(tiny_package(prefill_length=16, context_length=128))
    with pytest.raises(ValueError, match="context length"):
        share_kv_cache(one.prefill_module, other.decode_module)
    batch = tiny_package(prefill_length=16, context_length=64, batch=2)
    with pytest.raises(ValueError, match=r"one module has .*without --batch"):
        load_pair(batch.prefill_path, batch.decode_path, rt.WeightManager(0))


def test_a_package_that_is_not_there_says_how_to_make_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no compiled package in .*, which does not exist: expected"):
        Package.open(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"no compiled package in .*tcim-lite compile"):
        Package.open(tmp_path)


def test_an_embedding_of_another_size_is_refused(loaded, tiny_package):
    with pytest.raises(ValueError, match="another package"):
        tiny_package(prefill_length=16, context_length=64).embedding(192, 330)


class TestSampler:
    logits = np.array([0.0, 3.0, 1.0, 3.0, -2.0], np.float16)

    def test_greedy_takes_the_first_of_equals(self):
        assert Sampler()(self.logits) == 1

    def test_equal_seeds_choose_equally_and_others_do_not(self):
        flat = np.zeros(1000, np.float16)
        draws = [[Sampler(1.0, seed=seed)(flat) for _ in range(1)] for seed in (1, 1, 2)]
        assert draws[0] == draws[1] != draws[2]

    def test_top_k_keeps_the_most_likely(self):
        sampler = Sampler(temperature=5.0, top_k=2, seed=0)
        assert {sampler(self.logits) for _ in range(200)} == {1, 3}

    def test_top_p_keeps_the_smallest_set_that_reaches_p(self):
        sampler = Sampler(temperature=1.0, top_p=0.9, seed=0)
        assert {sampler(self.logits) for _ in range(200)} == {1, 3}  # 0.46 + 0.46
        sampler = Sampler(temperature=1.0, top_p=0.95, seed=0)
        assert {sampler(self.logits) for _ in range(500)} == {1, 2, 3}

    @pytest.mark.parametrize(
        "options", [{}, {"temperature": 2.0}, {"temperature": 1.0, "top_k": 2}, {"temperature": 1.0, "top_p": 0.95}]
    )
    def test_probabilities_are_those_it_chooses_by(self, options):
        sampler = Sampler(**options, seed=0)
        probabilities = sampler.probabilities(self.logits)
        assert probabilities.shape == self.logits.shape
        counts = np.bincount([sampler(self.logits) for _ in range(4000)], minlength=5) / 4000
        assert set(np.flatnonzero(probabilities)) >= set(np.flatnonzero(counts))
        np.testing.assert_allclose(counts, probabilities, atol=0.03)
        np.testing.assert_allclose(probabilities.sum(), 1)

    def test_frequencies_follow_the_softmax(self):
        sampler = Sampler(temperature=2.0, seed=0)
        counts = np.bincount([sampler(self.logits) for _ in range(4000)], minlength=5) / 4000
        weights = np.exp(self.logits.astype(np.float64) / 2)
        np.testing.assert_allclose(counts, weights / weights.sum(), atol=0.03)

    @pytest.mark.parametrize(
        ("option", "value"),
        [("temperature", -1), ("temperature", float("nan")), ("top_k", -1), ("top_p", 0), ("top_p", 1.1)],
    )
    def test_values_out_of_range_are_refused(self, option, value):
        with pytest.raises(ValueError, match=option):
            Sampler(**{option: value})


class ByteTokenizer:
    """One token per byte, as a byte-level BPE has in the worst case."""

    def decode(self, ids, skip_special_tokens=True):
        return bytes(ids).decode("utf-8", errors="replace")


def test_text_streams_whole_characters_only():
    stream = TextStream(ByteTokenizer())
    text = "a你好, 🙂!"
    pieces = [stream.add(byte) for byte in text.encode()]
    assert "".join(pieces) + stream.rest() == text
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces)


def test_text_stream_gives_out_what_never_completes():
    stream = TextStream(ByteTokenizer())
    assert stream.add("好".encode()[0]) == ""
    assert stream.rest() == "\N{REPLACEMENT CHARACTER}"


class CountingTokenizer(ByteTokenizer):
    """Counts the tokens that are decoded."""

    count = 0

    def decode(self, ids, skip_special_tokens=True):
        self.count += len(ids)
        return super().decode(ids)


def test_bytes_that_are_no_text_are_shown_and_decoded_a_few_times_only():
    tokenizer = CountingTokenizer()
    stream = TextStream(tokenizer)
    pieces = [stream.add(0x80) for _ in range(5000)]
    assert sum(map(len, pieces)) > 4900
    assert "".join(pieces) + stream.rest() == "\N{REPLACEMENT CHARACTER}" * 5000
    assert tokenizer.count < 5000 * 100


# Bytes that begin, continue and end characters, in any order, and runs of them.
PIECES = st.sampled_from(
    [b"a", b"\x80", b"\xe5", b"\xf0", b"\xf0\x9f", "好".encode(), "🙂".encode(), "🙂".encode()[1:]]
)


@given(st.lists(st.tuples(PIECES, st.integers(1, 40)), max_size=8))
def test_pieces_of_any_bytes_are_their_text(runs):
    data = b"".join(piece * count for piece, count in runs)
    stream = TextStream(ByteTokenizer())
    assert "".join(map(stream.add, data)) + stream.rest() == ByteTokenizer().decode(data)


class LeadingTokenizer:
    """Drops the space before the first token, and looks two tokens back before it says where words end."""

    def decode(self, ids, skip_special_tokens=True):
        return "".join(f" {i}" if n > 1 else f"{i}" for n, i in enumerate(ids))


def test_a_decoder_that_looks_far_back_gets_as_much_context():
    whole = LeadingTokenizer().decode(range(20))
    assert "".join(map(TextStream(LeadingTokenizer(), context=2).add, range(20))) == whole
    assert "".join(map(TextStream(LeadingTokenizer(), context=1).add, range(20))) != whole


def test_the_time_of_every_token_is_told(loaded):
    loaded.cached_tokens = []
    count = len(list(loaded.generate([5, 9], max_new_tokens=6)))
    stats = loaded.stats
    assert len(stats.token_s) == stats.new_tokens == count == 6
    assert stats.token_s == sorted(stats.token_s)
    assert (stats.first_token_s, stats.token_s[-1] - stats.token_s[0]) == (stats.token_s[0], stats.decode_s)


def test_limits_that_cannot_be_are_refused(loaded):
    for bad in (0, -1):
        with pytest.raises(ValueError, match="max_new_tokens"):
            next(loaded.generate([5, 9], max_new_tokens=bad))


def test_an_answer_another_one_has_overtaken_is_an_error(loaded):
    first = loaded.generate([5, 9, 7])
    next(first)
    next(loaded.generate([8, 8]))
    with pytest.raises(RuntimeError, match="another generate"):
        next(first)


def test_a_tiny_temperature_is_greedy():
    logits = np.array([1, 5, 3, -7], np.float16)
    assert Sampler(1e-308, seed=0)(logits) == Sampler(5e-324, top_k=3, top_p=0.9, seed=0)(logits) == 1


@pytest.mark.parametrize("length", [5, 16, 21])
def test_prefill_of_a_graph_with_all_logits_gives_the_last_ones(tiny_package, length):
    tokens = list(range(3, 3 + length))
    plain = LoadedPackage(tiny_package(prefill_length=16, context_length=64))
    every = LoadedPackage(tiny_package(prefill_length=16, context_length=64, all_logits=True))
    assert every.prefill(tokens).tobytes() == plain.prefill(tokens).tobytes()
