"""Options of the wrong type are refused by their name, where they are given."""

import math
import re

import numpy as np
import pytest
from llm_packages import LoadedPackage

from tcim_lite.llm import Sampler
from tcim_lite.llm.engine import Engine, SamplingParams, StructuredOutput


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 1.5}, "max_tokens=1.5: expected a whole number"),  # which no count of tokens ever reaches
        ({"max_tokens": "5"}, "max_tokens='5': expected a whole number"),
        ({"logprobs": True}, "logprobs=True: expected a whole number"),
        ({"prompt_logprobs": 1.0}, "prompt_logprobs=1.0: expected a whole number"),
        ({"temperature": "hot"}, "temperature='hot': expected a number"),
        ({"top_k": 2.0}, "top_k=2.0: expected a whole number"),
        ({"top_p": None}, "top_p=None: expected a number"),
        ({"seed": 1.5}, "seed=1.5: expected a whole number"),
        ({"logit_bias": [5]}, "logit_bias=[5]: expected a mapping"),
        ({"logit_bias": {"5": 1}}, "a token of logit_bias='5': expected a whole number"),
        ({"logit_bias": {5: "1"}}, "logit_bias[5]='1': expected a number"),
        ({"stop": 5}, "stop=5: expected a string or several"),
        ({"stop": [5]}, "stop=[5]: expected a string or several"),
        ({"stop_token_ids": 5}, "stop_token_ids=5: expected token ids"),
        ({"structured": {"regex": "a"}}, "structured={'regex': 'a'}: expected a StructuredOutput"),
    ],
)
def test_parameters(options, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        SamplingParams(**options)


def test_numbers_of_numpy_and_fractions_of_zero_are_numbers():
    made = SamplingParams(max_tokens=np.int64(3), temperature=np.float16(0.5), logit_bias={np.int32(4): -math.inf})
    assert made.sampler().temperature == 0.5
    assert Sampler(1, 0, 1, seed=np.uint8(3)).top_p == 1
    assert SamplingParams(stop=iter(["a"]), structured=StructuredOutput(regex="a")).stop == ("a",)


def test_what_an_engine_is_given(tiny_package):
    package = tiny_package(prefill_length=16, context_length=64)
    with pytest.raises(TypeError, match=r"devices=0: expected ids in a sequence, such as \[0\]"):
        Engine.open(package, devices=0)
    with pytest.raises(TypeError, match=r"params={'max_tokens': 3}: expected SamplingParams"):
        Engine.open(package).add([1, 2], {"max_tokens": 3})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": 0.7}, "sampler=0.7: expected a Sampler, or None"),
        ({"sampler": Sampler}, "expected a Sampler, or None"),
        ({"sampler": SamplingParams()}, "sampler=SamplingParams("),
        ({"max_new_tokens": "5"}, "max_new_tokens='5': expected a whole number"),
        ({"max_new_tokens": 2.5}, "max_new_tokens=2.5: expected a whole number"),
        ({"stop_tokens": 5}, "stop_tokens=5: expected token ids, or None"),
        ({"stop_tokens": "</s>"}, "stop_tokens='</s>': expected token ids, or None"),
    ],
)
def test_what_generate_is_given(tiny_package, options, message):
    model = LoadedPackage(tiny_package(prefill_length=16, context_length=64))
    with pytest.raises(TypeError, match=re.escape(message)):
        next(model.generate([1, 2], **options))
    assert len(list(model.generate([1, 2], lambda logits, text, prompt: 3, np.int64(2), np.array([9])))) == 2
