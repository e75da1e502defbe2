"""A whole LLM: prefill, decode and verify of one package."""

import itertools
import random
import threading

import numpy as np

from .. import under_test as rt
from ..checks import bind, same_rows
from ..registry import each

TIER = "llm"


class Chat:
    """Prefill, decode and verify on one set of caches, owned by prefill."""

    def __init__(self, kit, roles=("llm_prefill", "llm_decode")):
        manager = rt.WeightManager(0)
        self.prefill = rt.load(kit.model(roles[0]), rt.Option(manager))
        self.caches = caches_of(self.prefill)
        self.others = []
        for role in roles[1:]:
            module = rt.load(kit.model(role), rt.Option(manager).set_dummy_tensors(self.caches))
            for name in self.caches:
                module.set_input(name, self.prefill.get_dev_input(name))
            self.others.append(module)
        self.table = table(kit, self.prefill)

    def feed(self, module, tokens, valid):
        """Runs a graph on tokens after `valid` cached ones; its logits [rows, vocabulary]."""
        shape = module.get_input_info("input_1").shape
        rows = np.zeros(shape, np.float16)
        rows[0, : len(tokens)] = self.table[tokens]
        module.set_input("input_1", rows)
        module.set_input("valid_length", np.array([valid], np.int32))
        module.set_input("current_length", np.array([len(tokens)], np.int32))
        module.run()
        module.sync()
        return module.get_output("logits").numpy()[0]

    @property
    def chunk(self):
        return self.prefill.get_input_info("input_1").shape[1]

    @property
    def context(self):
        return self.prefill.get_input_info(self.caches[0]).shape[2]

    def prompt(self, tokens, chunk=None):
        """Prefill in chunks; the logits of the last token."""
        for at in range(0, len(tokens), chunk or self.chunk):
            logits = self.feed(self.prefill, tokens[at : at + (chunk or self.chunk)], at)
        return logits[-1]

    def rows(self, count):
        """The first rows of every cache."""
        return [self.prefill.get_dev_input(name).numpy()[:, :, :count] for name in self.caches]


def caches_of(module):
    names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
    return [name for name in names if "cache" in name]


def table(kit, module):
    """The embedding table, [vocabulary, hidden]."""
    return np.fromfile(kit.model("llm_embedding"), np.float16).reshape(-1, module.get_input_info("input_1").shape[2])


def some_tokens(chat, count, seed=0):
    return np.random.default_rng(seed).integers(0, len(chat.table), count)


def equal(left, right):
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a, b)


def same_caches(left, right):
    for a, b in zip(left, right, strict=True):
        same_rows(a, b)


def by_decode(kit, tokens):
    """Logits after every token, one by one, and the caches."""
    chat = Chat(kit)
    return [chat.feed(chat.others[0], [token], at)[-1] for at, token in enumerate(tokens)], chat


def test_prefill_equals_decode_at_every_length(kit):
    tokens = some_tokens(Chat(kit), 40)
    expected, one_by_one = by_decode(kit, tokens)
    chat = Chat(kit)
    for length in range(1, len(tokens) + 1):
        same_rows(chat.prompt(tokens[:length]), expected[length - 1])
        same_caches(chat.rows(length), one_by_one.rows(length))


@each("chunk", [1, 2, 3, 5, 7, 8, 11, 13, 15, 16])
def test_every_chunk_gives_the_same(kit, chunk):
    chat = Chat(kit)
    tokens = some_tokens(chat, 37)
    expected, one_by_one = by_decode(kit, tokens)
    same_rows(chat.prompt(tokens, chunk), expected[-1])
    same_caches(chat.rows(37), one_by_one.rows(37))


def test_decode_goes_on_from_every_prompt(kit):
    chat = Chat(kit)
    tokens = some_tokens(chat, chat.context)
    expected, _ = by_decode(kit, tokens)
    for length in (1, 2, 15, 16, 17, 31, 32, 33, chat.context - 1):
        chat.prompt(tokens[:length])
        for at in range(length, min(length + 4, chat.context)):
            same_rows(chat.feed(chat.others[0], [tokens[at]], at)[-1], expected[at])


def test_verify_gives_the_logits_of_every_row(kit):
    chat = Chat(kit, ("llm_prefill", "llm_decode", "llm_verify"))
    decode, verify = chat.others
    tokens = some_tokens(chat, 30)
    expected, one_by_one = by_decode(kit, tokens)
    chat.prompt(tokens[:9])
    at, rng = 9, random.Random(0)
    most = verify.get_input_info("input_1").shape[1]
    while at < 30:
        count = min(rng.randrange(1, most + 1), 30 - at)
        logits = chat.feed(verify, tokens[at : at + count], at)
        same_rows(logits[:count], expected[at : at + count])
        accepted = rng.randrange(1, count + 1)  # the rest is rejected and overwritten
        at += accepted
        if at < 30:
            same_rows(chat.feed(decode, [tokens[at]], at)[-1], expected[at])
            at += 1
    same_caches(chat.rows(30), one_by_one.rows(30))


def test_a_stored_prefix_changes_nothing(kit):
    chat = Chat(kit)
    tokens, other = some_tokens(chat, 25), some_tokens(chat, 20, seed=1)
    expected = chat.prompt(tokens)
    stored = {name: chat.prefill.get_dev_input(name).to_host(True).numpy() for name in chat.caches}
    chat.prompt(other)
    for name, values in stored.items():
        chat.prefill.set_input(name, values)
    np.testing.assert_array_equal(chat.feed(chat.prefill, tokens[20:], 20)[-1], expected)
    for name in chat.caches:  # a new chat
        chat.prefill.set_input(name, np.zeros_like(stored[name]))
    np.testing.assert_array_equal(chat.prompt(tokens), expected)


class Batch:
    """Decode for several slots, which owns their caches, and a prefill that is bound to one slot after another."""

    def __init__(self, kit):
        self.decode = rt.load(kit.model("llm_decode_batch"))
        self.prefill = rt.load(kit.model("llm_prefill"))
        self.per_slot = self.prefill.get_num_inputs() - 1  # two lengths and the caches
        self.slots = self.decode.get_input_info("input_1").shape[0]
        self.table = table(kit, self.prefill)

    def name(self, slot, index):
        return self.decode.get_input_name(1 + slot * self.per_slot + index)

    def fill(self, slot, tokens):
        for index in range(3, self.prefill.get_num_inputs()):
            tensor = self.decode.get_dev_input(self.name(slot, index - 1))
            bind(self.prefill, self.prefill.get_input_name(index), tensor)
        rows = np.zeros(self.prefill.get_input_info("input_1").shape, np.float16)
        rows[0, : len(tokens)] = self.table[tokens]
        self.prefill.set_input("input_1", rows)
        self.prefill.set_input("valid_length", 0)
        self.prefill.set_input("current_length", len(tokens))
        self.prefill.run(True)

    def step(self, tokens, valid):
        """Logits of a step [slots, vocabulary]; a token of None is an unused slot."""
        rows = np.zeros(self.decode.get_input_info("input_1").shape, np.float16)
        for slot, token in enumerate(tokens):
            if token is not None:
                rows[slot, 0] = self.table[token]
            self.decode.set_input(self.name(slot, 0), valid[slot])
            self.decode.set_input(self.name(slot, 1), 1)
        self.decode.set_input("input_1", rows)
        self.decode.run(True)
        return self.decode.get_output("logits").numpy()[:, 0]


@each("seed", [0, 1])
def test_slots_answer_in_any_order_and_beside_unused_ones(kit, seed):
    prompts = [some_tokens(Chat(kit), length, seed) for length in (3, 9, 14)]
    expected = [by_decode(kit, prompt)[0][-1] for prompt in prompts]
    count = Batch(kit).slots
    for order in itertools.permutations(range(min(3, count))):
        for used in range(1, len(order) + 1):
            batch = Batch(kit)
            tokens, valid = [None] * count, [0] * count
            for slot, number in enumerate(order[:used]):
                batch.fill(slot, prompts[number][:-1])
                tokens[slot], valid[slot] = prompts[number][-1], len(prompts[number]) - 1
            found = batch.step(tokens, valid)
            for slot, number in enumerate(order[:used]):
                same_rows(found[slot], expected[number])


def test_a_slot_beyond_the_context_harms_no_other(kit):
    """Demos go on decoding a finished slot, whose valid length keeps rising."""
    prompts = [some_tokens(Chat(kit), length) for length in (9, 14)]
    expected = [by_decode(kit, prompt)[0][-1] for prompt in prompts]
    batch = Batch(kit)
    tokens, valid = [None] * batch.slots, [0] * batch.slots
    for slot, prompt in zip((0, -1), prompts, strict=True):
        batch.fill(slot % batch.slots, prompt[:-1])
        tokens[slot], valid[slot] = prompt[-1], len(prompt) - 1
    context = batch.decode.get_input_info(batch.name(1, 2)).shape[2]
    for beyond in (context, context + 7, 2**31 - 1):
        tokens[1], valid[1] = 1, beyond
        try:
            found = batch.step(tokens, valid)
        except RuntimeError:
            if rt.is_emulator():
                raise
            continue  # what the card does is not known
        same_rows(found[[0, -1]], expected)
        assert np.isfinite(found[1]).all()


@each("share", [True, False])
def test_threads_with_a_model_each_answer_as_one_alone(kit, share):
    manager = rt.WeightManager(0)
    paths = kit.model("llm_prefill"), kit.model("llm_decode")
    embedding = table(kit, rt.load(paths[0]))

    def logits(number, weights):
        prefill = rt.load(paths[0], rt.Option(weights))
        decode = rt.load(paths[1], rt.Option(weights).set_dummy_tensors(caches_of(prefill)))
        for name in caches_of(prefill):
            decode.set_input(name, prefill.get_dev_input(name))
        for module in (prefill, decode):
            module.set_stream(rt.Stream())
        prompt = [(7 * number + i) % len(embedding) for i in range(5 + number)]
        rows = np.zeros(prefill.get_input_info("input_1").shape, np.float16)
        rows[0, : len(prompt)] = embedding[prompt]
        prefill.set_input("input_1", rows)
        prefill.set_input("current_length", len(prompt))
        prefill.run()
        found = [prefill.get_output("logits").numpy()]
        decode.set_input("current_length", 1)
        for position in range(len(prompt), len(prompt) + 6):
            decode.set_input("input_1", embedding[found[-1].argmax()])
            decode.set_input("valid_length", position)
            decode.run()
            found.append(decode.get_output("logits").numpy())
        return found

    serial = [logits(number, rt.WeightManager(0)) for number in range(8)]
    failures = []
    barrier = threading.Barrier(8)

    def work(number):
        barrier.wait()
        try:
            for _ in range(2):
                equal(logits(number, manager if share else rt.WeightManager(0)), serial[number])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
