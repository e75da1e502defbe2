"""Greedy tokens of the server are those of `LanguageModel.generate`, at any concurrency, in strict mode."""

import concurrent.futures
import random

import pytest
from serve_live import QUESTIONS, user

TEXTS = [*QUESTIONS, *(f"What is {a} + {b}?" for a, b in [(1, 2), (45, 17), (80, 9), (33, 33), (7, 70), (21, 4)])]
# Fewer than the server has slots, as many, one more, and many more.
SLOTS = 4


@pytest.mark.parametrize(
    "concurrency",
    [1, pytest.param(2, marks=pytest.mark.slow), SLOTS, pytest.param(SLOTS + 1, marks=pytest.mark.slow), 16],
)
def test_answers_are_those_of_generate_with_joins_aborts_and_cached_prefixes(server, alone, concurrency):
    chance = random.Random(concurrency)
    texts = chance.choices(TEXTS, k=concurrency + 6)
    texts[1::4] = texts[::4][: len(texts[1::4])]  # the same questions again: their rows may be there

    def ask(number):
        with server.client(max_retries=3) as client:
            stream = client.chat.completions.create(model="qwen3", messages=user(texts[number]), stream=True)
            leave_after = random.Random(number).randint(1, 6) if number % 5 == 4 else None
            pieces = []
            for chunk in stream:
                pieces.append(chunk.choices[0].delta.content or "")
                if len(pieces) == leave_after:
                    stream.close()
                    break
            return "".join(pieces), leave_after is None

    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        answers = list(pool.map(ask, range(len(texts))))
    for text, (answer, is_whole) in zip(texts, answers, strict=True):
        wanted = alone(text)[1]
        assert answer == wanted if is_whole else wanted.startswith(answer), text


def test_prompts_of_tokens_that_mean_nothing_give_the_same_tokens(server, one_slot, packages):
    """Longer answers, of any tokens, beside each other."""
    chance = random.Random(1)
    prompts = [[chance.randrange(3, 1000) for _ in range(chance.randint(1, 90))] for _ in range(12)]

    def ask(prompt):
        with server.client(max_retries=3) as client:
            options = {"ignore_eos": True, "structured_outputs": None}
            done = client.completions.create(
                model="qwen3", prompt=prompt, max_tokens=40, logprobs=0, extra_body=options
            )
            return done.choices[0].logprobs.tokens

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, prompts))
    from tcim_lite.llm import Sampler
    from tcim_lite.serve.logprobs import CompletionLogprobs
    from tcim_lite.serve.vocabulary import Vocabulary

    written = CompletionLogprobs(Vocabulary(packages(1).tokenizer_folder))
    for prompt, answer in zip(prompts, answers, strict=True):
        one_slot.cached_tokens = []
        tokens = list(one_slot.generate(prompt, Sampler(), 40, ()))
        assert answer == [written._text(token) for token in tokens]


def test_replicas_on_devices_of_their_own_answer_as_one_engine(start, alone):
    server = start(
        "--devices", "0,1,2,3", "--replicas", 2, ndevice=2, single_device=False, env={"TCIM_LITE_DEVICE_NUM": "4"}
    )
    assert [slot["replica"] for slot in server.get("/slots").json()] == [0] * 4 + [1] * 4

    def ask(text):
        with server.client() as client:
            return client.chat.completions.create(model="qwen3", messages=user(text)).choices[0].message.content

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, TEXTS * 2)) == [alone(text)[1] for text in TEXTS * 2]
    assert server.metric("tcim:slots") == 8
