"""Requests with images among their tokens, in the engine, against transformers in float32 and against each other."""

from __future__ import annotations

import numpy as np
import pytest
from llm_packages import compile_package

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")

import torch
import warm_python
from oracle import logit_bound
from vision_language import IMAGE_TOKEN, MODELS, Prompt, features_of, patches_for, random_model

from tcim_lite.llm import mixed_prompt
from tcim_lite.llm.engine import Engine, RequestError, SamplingParams, answer_all
from tcim_lite.llm.mixed_prompt import Features, MixedPrompt, keys_of

GREEDY = SamplingParams(max_tokens=6, logprobs=1)
# One without deepstack, one with three positions in one input, and one with several slots.
FAMILIES = ("qwen3_vl", "paddleocr_vl", "glm_ocr", "qwen3_5")


class Model:
    """A tiny model of transformers, and engines over its package in float32."""

    def __init__(self, family: str, folder):
        self.model = random_model(family)
        self.model.save_pretrained(folder / "hf")
        sizes = {"prefill_length": 16, "context_length": 128, "batch": 3 if family == "qwen3_5" else 1}
        self.package = compile_package(folder / "hf", folder / "out", quant="float32", **sizes)

    def image(self, rows: int, columns: int, seed: int) -> tuple[Features, tuple]:
        """Features of a random image of so many tokens, and what transformers takes of it."""
        vision = self.model.config.vision_config
        cell = vision.patch_size * vision.spatial_merge_size
        pixels = np.random.default_rng(seed).standard_normal((3, rows * cell, columns * cell))
        patches, grid = patches_for(self.model, pixels)
        found = [part.numpy() for part in features_of(self.model, patches, [grid])]
        return Features(found[0], tuple(found[1:]), (rows, columns)), (patches, grid)

    def prompt(self, *parts: int | tuple[int, int, int]) -> tuple[MixedPrompt, list]:
        """So many tokens of text, or an image (rows, columns, seed), one behind the other."""
        rng, tokens, places, seen = np.random.default_rng(4), [], [], []
        for part in parts:
            if isinstance(part, int):
                tokens += rng.integers(0, IMAGE_TOKEN, part).tolist()
                continue
            features, given = self.image(*part)
            places.append((len(tokens), features))
            tokens += [IMAGE_TOKEN] * len(features)
            seen.append(given)
        return MixedPrompt(tokens, places), seen

    def logprobs(self, tokens: list[int], seen: list) -> tuple[np.ndarray, float]:
        """By transformers, [N, V], and how far off ours may be."""
        prompt = Prompt(self.model, np.array(tokens), torch.cat([p for p, _ in seen]), [grid for _, grid in seen])
        # Twice: the logarithm of a sum is off by as much as a logit.
        bound = 2 * logit_bound(self.model.config.text_config) * float(np.abs(prompt.logits).max())
        return torch.log_softmax(torch.tensor(prompt.logits), -1).numpy(), bound


@pytest.fixture(scope="module", params=FAMILIES)
def tiny(request, tmp_path_factory):
    return Model(request.param, tmp_path_factory.mktemp(request.param))


def answer(engine: Engine, *prompts, params=GREEDY):
    return answer_all(engine, prompts, params)


@pytest.mark.parametrize("parts", [(5, (3, 4, 1), 9), ((2, 5, 2), 3, (4, 2, 3), 1, (1, 1, 4), 20), (1, (6, 8, 5), 1)])
def test_answers_are_those_of_transformers(tiny, parts, strict_mode):
    prompt, seen = tiny.prompt(*parts)
    (event,) = answer(Engine.open(tiny.package), prompt)
    assert (event.finish_reason, len(event.token_ids)) == ("length", 6)
    assert event.usage.prompt_tokens == len(prompt)
    want, bound = tiny.logprobs([*prompt, *event.token_ids], seen)
    for place, found in enumerate(event.logprobs, len(prompt) - 1):
        assert found.token == event.token_ids[place - len(prompt) + 1]
        assert abs(found.logprob - want[place, found.token]) <= bound
        assert want[place].max() - want[place, found.token] <= bound  # greedy


@pytest.mark.parametrize("family", MODELS)
def test_positions_are_those_of_transformers(family):
    model = random_model(family)
    tokens = [IMAGE_TOKEN] * 40
    tokens[0], tokens[13:20], tokens[32:] = 1, [2] * 7, [3] * 8
    image = [Features(np.zeros((12, 4)), (), (rows, 12 // rows)) for rows in (3, 2)]
    prompt = MixedPrompt(tokens, [(1, image[0]), (20, image[1])])
    ids, kinds = torch.tensor([tokens]), (torch.tensor([tokens]) == IMAGE_TOKEN).int()
    merge = model.config.vision_config.spatial_merge_size
    grids = torch.tensor([[1, rows * merge, 12 // rows * merge] for rows in (3, 2)])
    want, delta = model.model.get_rope_index(ids, kinds, image_grid_thw=grids)
    np.testing.assert_array_equal(prompt.part(0, 40).positions, want[:, 0].numpy())
    assert prompt.shift == int(delta[0, 0]) < 0


def test_images_with_the_same_tokens_share_no_rows(tiny):
    """The places of both images have the same tokens; only what lies before them may be used again."""
    fresh, engine = Engine.open(tiny.package), Engine.open(tiny.package)
    fresh.reuse_prefixes = False
    first, second = (tiny.prompt(20, (3, 4, seed), 9)[0] for seed in (1, 2))
    assert list(first) == list(second)
    cached = []
    for prompt in (first, second, second, first):
        (event,), (want,) = answer(engine, prompt), answer(fresh, prompt)
        assert (event.token_ids, event.logprobs) == (want.token_ids, want.logprobs)
        cached.append(event.usage.cached_tokens)
    again = len(first) - 1
    if engine.slots.carries:
        assert cached == [0] * 4
    else:
        assert cached == [0, 20, again, 20]
    # Rows of an image are no rows of its placeholders, nor of anything else that has their numbers.
    text = list(first)
    (event,), (want,) = answer(engine, text), answer(fresh, text)
    assert (event.token_ids, event.usage.cached_tokens) == (want.token_ids, 0 if engine.slots.carries else 20)


def test_rows_on_the_host_know_their_image(tiny):
    engine, fresh = Engine.open(tiny.package, prefix_cache_bytes=1 << 26), Engine.open(tiny.package)
    fresh.reuse_prefixes = False
    first, second = (tiny.prompt(3, (4, 5, seed), 9)[0] for seed in (1, 2))
    for prompt, cached in ((first, 0), (second, 3), (first, len(first) - 1), (second, len(second) - 1)):
        (event,), (want,) = answer(engine, prompt), answer(fresh, prompt)
        assert (event.token_ids, event.logprobs) == (want.token_ids, want.logprobs)
        assert event.usage.cached_tokens == (0 if engine.slots.carries else cached)


def test_text_beside_and_behind_images_is_as_alone(tiny):
    """In other slots, and in the slot that had an image before."""
    engine = Engine.open(tiny.package)
    mixed = [tiny.prompt(5, (3, 4, 1), 9)[0], tiny.prompt((4, 4, 2), 3)[0]]
    texts = [list(range(10, 47)), [5, 6, 7]]
    prompts = [mixed[0], texts[0], mixed[1], texts[1], mixed[0]]
    alone = []
    for prompt in prompts:
        (event,) = answer(Engine.open(tiny.package), prompt)
        alone.append((event.token_ids, event.logprobs))
    together = answer(engine, *prompts)
    assert [(event.token_ids, event.logprobs) for event in together] == alone


def test_penalties_count_the_tokens_of_places(tiny, monkeypatch):
    """Keys of features are no ids: counted from the end of the vocabulary, these are the best token and others."""
    prompt, _ = tiny.prompt(5, (3, 4, 1), 9)
    engine, numbers = Engine.open(tiny.package), mixed_prompt._Numbers()
    numbers._next = answer(engine, prompt)[0].token_ids[0] - engine.slots.vocab_size
    monkeypatch.setattr(mixed_prompt, "_NUMBERS", numbers)
    prompt = MixedPrompt(prompt.tokens, prompt.places)
    params = SamplingParams(max_tokens=4, repetition_penalty=1.7, frequency_penalty=0.5, logprobs=0)
    (found,) = answer(Engine.open(tiny.package), prompt, params=params)
    slots, sampler, tokens = Engine.open(tiny.package).slots, params.sampler(), list(prompt)
    for begin in range(0, len(prompt), 16):
        logits = slots.prefill(0, prompt.keys[begin : begin + 16], prompt)
    for token in found.token_ids:
        assert sampler(logits, tokens, len(prompt)) == token
        tokens.append(token)
        logits = slots.decode({0: token})[0]


def test_features_of_another_package_are_refused(tiny):
    engine = Engine.open(tiny.package)
    width = engine.slots.feature_width
    with pytest.raises(RequestError, match=f"features of {width + 4} numbers a token, the graphs take {width}"):
        engine.add(MixedPrompt([1, 2, 3], [(1, Features(np.zeros((1, width + 4), np.float32)))]))
    stacked = Features(np.zeros((1, width)), (np.zeros((1, width)),) * 2)
    with pytest.raises(RequestError, match="2 deepstack features, the graphs take"):
        engine.add(MixedPrompt([1, 2, 3], [(1, stacked)]))
    own = Features(np.zeros((20, width)), sees_itself=True)
    with pytest.raises(RequestError, match=r"image of 20 tokens.* a run takes 16; compile with --prefill-length 20"):
        engine.add(MixedPrompt([1] * 22, [(1, own)]))
    with pytest.raises(RequestError, match="the prompt has 200 tokens, the context holds 128"):
        engine.add(MixedPrompt([1] * 200, [(1, Features(np.zeros((1, width))))]))


def test_keys_are_equal_for_equal_features_alone():
    rows = np.arange(24, dtype=np.float32).reshape(6, 4)
    kinds = [
        Features(rows),
        Features(rows + 1),
        Features(rows.astype(np.float16)),
        Features(rows, (rows,)),
        Features(rows, (rows * 2,)),
        Features(rows, grid=(2, 3)),
        Features(rows, grid=(3, 2)),
        Features(rows, sees_itself=True),
    ]
    keys = [tuple(MixedPrompt([7] * 8, [(1, kind)]).keys) for kind in kinds]
    assert all(key[0] == key[7] == 7 and max(key[1:7]) < 0 and len(set(key[1:7])) == 6 for key in keys)
    assert len({number for key in keys for number in key[1:7]}) == 6 * len(kinds)
    again = MixedPrompt([7] * 8, [(2, Features(rows.copy()))])
    assert again.keys[2:8] == list(keys[0][1:7])
    assert keys_of(again) == again.keys
    assert keys_of([1, 2]) == [1, 2]


def test_images_that_see_themselves_are_whole():
    """A run ends before such an image or behind it, and so does what comes from a cache."""
    image = Features(np.zeros((6, 4)), sees_itself=True)
    prompt = MixedPrompt([1] * 20, [(3, image), (9, Features(np.zeros((4, 4)))), (13, image)])
    assert [prompt.cut(0, most) for most in (2, 3, 5, 9, 10, 16, 19, 30)] == [2, 3, 3, 9, 10, 13, 19, 20]
    assert prompt.cut(3, 6) == 9
    with pytest.raises(ValueError, match=r"an image of 6 tokens.* a run takes 5; compile with --prefill-length 6"):
        prompt.cut(3, 5)
    assert [prompt.whole(count) for count in (2, 3, 4, 8, 9, 12, 14, 18, 19)] == [2, 3, 3, 3, 9, 12, 13, 13, 19]
    blocks = prompt.part(2, 15).blocks.tolist()
    assert blocks == [-1, *[0] * 6, *[-1] * 4, 2, 2]


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([], "no features"),
        ([(9, 2)], "2 rows of features at place 9 of 10 tokens"),
        ([(1, 3), (3, 2)], "2 rows of features at place 3 of 10 tokens, the first 4 of them taken"),
        ([(5, 2), (1, 2)], "place 1 of 10 tokens, the first 7"),
    ],
)
def test_places_have_to_be_in_the_prompt(places, message):
    with pytest.raises(ValueError, match=message):
        MixedPrompt([1] * 10, [(begin, Features(np.zeros((count, 4)))) for begin, count in places])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((np.zeros((0, 4)),), "expected .tokens, width., one token at least"),
        ((np.zeros(4),), r"features of shape \[4\]"),
        ((np.zeros((2, 4)), (np.zeros((3, 4)),)), r"deepstack features of shape \[3, 4\]"),
        ((np.zeros((2, 4)), (), (2, 2)), "a grid of 2 x 2 tokens for 2 rows"),
    ],
)
def test_features_have_to_fit_together(given, message):
    with pytest.raises(ValueError, match=message):
        Features(*given)


OVER_DEVICES = """
import sys
import numpy as np
from tcim_lite.llm.engine import Engine, Features, MixedPrompt, SamplingParams, answer_all
rng = np.random.default_rng(1)
width = Engine.open(sys.argv[1]).slots.feature_width
features = [Features(rng.standard_normal((12, width)).astype(np.float32) * 0.1, (), (3, 4)) for _ in range(2)]
if sys.argv[3] == "3":
    stacks = rng.standard_normal((3, 12, width)).astype(np.float32) * 0.1
    features = [Features(each.rows, tuple(stacks), each.grid) for each in features]
prompts = [MixedPrompt([5] * 40, [(6, each), (25, features[0])]) for each in features]
kinds = {"one": {}, "devices": {"devices": (0, 1)}, "stages": {"devices": (0, 1), "pipeline": True}}
found = {}
for kind in sys.argv[2].split(","):
    answers = answer_all(Engine.open(sys.argv[1], **kinds[kind]), prompts, SamplingParams(max_tokens=5, logprobs=0))
    found[kind] = [[(item.token, item.logprob) for item in event.logprobs] for event in answers]
    assert all(len(each) == 5 for each in found[kind])
assert len({repr(answers) for answers in found.values()}) == 1, found
assert found["one"][0] != found["one"][1]
"""


@pytest.mark.parametrize("family", ["qwen3_vl", "glm_ocr"])
def test_images_over_devices_and_stages(tiny_package, monkeypatch, family):
    """Each stage gets positions, and the deepstack rows of its own layers."""
    sizes = {"prefill_length": 16, "context_length": 64, "quant": "w8a8h1_sefp"}
    package = tiny_package(family, ndevice=2, pipeline=2, **sizes)
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    stacks = "3" if family == "qwen3_vl" else "0"
    done = warm_python.run("-c", OVER_DEVICES, package.folder, "one,devices,stages", stacks)
    assert done.returncode == 0, done.stderr
