"""Whole conversations made from the tasks: training rows of a given length, and single held-out questions."""

import math
import random

import arithmetic
import lookup
import memory
import smalltalk
import strings

TASKS = {
    "arithmetic": arithmetic.make,
    "copy": strings.make_copy,
    "reverse": strings.make_reverse,
    "lookup": lookup.make,
    "memory": memory.make,
    "smalltalk": smalltalk.make,
    "not in list": lookup.make_missing,
    "letters": strings.make_letters,
}
LANGUAGES = ("en", "zh")
_SYSTEM = {
    "en": ["You are a helpful assistant.", "You are a tiny demo model."],
    "zh": ["你是一个有用的助手。", "你是一个很小的演示模型。"],
}
_SHORT_MIX = (
    ["arithmetic"] * 7
    + ["copy"] * 3
    + ["reverse"] * 5
    + ["smalltalk"] * 2
    + ["lookup"] * 2
    + ["memory"] * 3
    + ["letters"]
)
# Tokens of an average list line; only used to aim at a length, the row builder cuts what does not fit.
LINE_TOKENS = 7.0


def filler(rng, lang):
    """One turn that has nothing to do with what surrounds it."""
    return TASKS[rng.choice(["arithmetic", "copy", "reverse", "smalltalk"])](rng, lang)


def _memory(rng, lang, length):
    fillers = (0, max(2, length // 60))
    return memory.make(rng, lang, filler=filler, fillers=fillers, questions=rng.randint(1, 4))


def conversation(rng, length):
    """Turns for a training row of about `length` tokens, and a system text or None."""
    lang = rng.choice(LANGUAGES)
    system = rng.choice(_SYSTEM[lang]) if rng.random() < 0.08 else None
    if (length >= 1024 and rng.random() < 0.85) or (length >= 512 and rng.random() < 0.5):
        return system, _long_lookup(rng, lang, length)
    turns, budget, once = [], length, set()
    while budget > 0:
        if rng.random() < 0.05:
            lang = rng.choice(LANGUAGES)
        task = rng.choice(_SHORT_MIX)
        # Two sets of facts, or two lists, in one conversation could contradict each other.
        if task in once:
            continue
        if task == "memory":
            once.add(task)
            more = _memory(rng, lang, length)
        elif task == "lookup":
            once.add(task)
            more = lookup.make(rng, lang, questions=rng.randint(1, 3), missing=0.1)
        else:
            more = TASKS[task](rng, lang)
        turns += more
        budget -= sum(24 + len(q + a) // 4 for q, a in more)
    return system, turns


def _long_lookup(rng, lang, length):
    """A list whose size is spread evenly over a logarithmic scale, with questions in the room that is left."""
    room = length - 120
    tokens = math.exp(rng.uniform(math.log(room / 3), math.log(room)))
    before = filler(rng, lang) if rng.random() < 0.15 else []
    count = min(12, 2 + int((length - tokens) / 30))
    return before + lookup.make(
        rng, lang, lines=max(4, int(tokens / LINE_TOKENS)), questions=count, filler=filler, missing=0.06
    )


def heldout(task, lang, seed, length=None):
    """One question the model is judged on, as messages without the final answer, and that answer.

    `length` aims a lookup at that many prompt tokens. The seed is spread so that neighbouring seeds share nothing.
    """
    rng = random.Random(f"heldout/{task}/{lang}/{seed}/{length}")
    if task == "lookup":
        turns = lookup.make(rng, lang, lines=max(2, int((length or 120) / LINE_TOKENS)))
    elif task == "memory":
        turns = memory.make(rng, lang, filler=filler, fillers=(0, 4))
    else:
        turns = TASKS[task](rng, lang, heldout=True)
    messages = []
    for question, answer in turns:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return messages[:-1], messages[-1]["content"]
