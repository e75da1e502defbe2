"""From the bytes of sounds to answers about them: as transformers answers."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")

from sound_chats import HearingModel, samples_of, wav

from tcim_lite.llm.engine import Engine, SamplingParams, answer_all
from tcim_lite.llm.sounds import SoundError, SoundPrompts
from tcim_lite.llm.sounds.prompts import quiet_end


@pytest.fixture(
    scope="module",
    params=[("qwen3_asr", {}), ("glmasr", {"batch": 2}), ("qwen3_omni_moe", {}), ("minicpmo", {})],
    ids=lambda each: each[0],
)
def tiny(request, tmp_path_factory):
    family, options = request.param
    return HearingModel(family, tmp_path_factory.mktemp(family), **options)


def test_answers_are_those_of_transformers(tiny, strict_mode):
    """Two sounds that differ, and one of them again."""
    sounds = SoundPrompts.open(tiny.package, tiny.tokenizer)
    files = [wav(1.3, 1), wav(4, 2), wav(1.3, 1)]
    heard = [sounds.take(file) for file in files]
    assert heard[0] is heard[2]
    text = "<|im_start|>user\nOne " + f" and {sounds.mark}".join(["", "", "", "?<|im_end|>\n"])
    tokens = tiny.tokenizer.encode(sounds.expand(text, heard), add_special_tokens=False).ids
    prompt = sounds.place(tokens, heard)
    (event,) = answer_all(Engine.open(tiny.package), [prompt], SamplingParams(max_tokens=5, logprobs=0))
    assert len(event.token_ids) == 5
    want, bound = tiny.logprobs([*tokens, *event.token_ids], list(map(samples_of, files)))
    for place, found in enumerate(event.logprobs, len(tokens) - 1):
        assert abs(found.logprob - want[place, found.token]) <= bound
        assert want[place].max() - want[place, found.token] <= bound


def test_a_long_sound_has_parts(tiny):
    sounds = SoundPrompts.open(tiny.package, tiny.tokenizer)
    if tiny.family == "qwen3_omni_moe":  # which hears it in chunks
        first, second = (part[:2] for part in sounds.parts(wav(31, 3)))
        assert first[1] == second[0]
        assert (first[0], second[1]) == (0, 31)
        assert 29 < first[1] < 30
        assert sounds.take(wav(31, 3)).tokens == 31 * 13
        return
    parts = [part[:2] for part in sounds.parts(wav(9.5, 3))]
    assert [begin for begin, _ in parts] == [0, *(end for _, end in parts[:-1])]
    assert (len(parts), parts[-1][1]) == (3, 9.5)
    assert all(3 < end - begin < 4 for begin, end in parts[:-1])
    assert len(sounds.parts(wav(4, 3))) == 1
    longer = "$" if tiny.family == "minicpmo" else ", or compile with --audio-frames 1000"
    with pytest.raises(SoundError, match=rf"a sound of 9\.50 s, the encoder takes 4; cut it{longer}"):
        sounds.take(wav(9.5, 3))
    least = 640 if tiny.family == "minicpmo" else 1280
    with pytest.raises(SoundError, match=f"a sound of 480 samples is too short; expected {least}, 16000 a second"):
        sounds.parts(wav(0.03, 3))


@pytest.mark.parametrize("quiet", [3.1, 3.46, 3.9])
def test_a_long_sound_is_cut_where_it_is_quiet(quiet):
    samples = np.random.default_rng(3).uniform(-1, 1, 9 * 16000).astype(np.float32)
    begin = round(quiet * 16000) - 1600  # with 0.2 s of silence around it
    samples[begin : begin + 3200] = 0
    assert abs(quiet_end(samples, 4 * 16000) - quiet * 16000) <= 1600 / 2
    assert quiet_end(samples[: 4 * 16000], 4 * 16000) == 4 * 16000
    for most in (4, 5, 999, 20000):  # however small a part is, it is one
        assert most / 2 <= quiet_end(samples, most) < most
