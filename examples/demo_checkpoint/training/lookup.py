"""Finding one line in a list that can fill the whole context."""

import words
from phrasing import PHRASES, vary
from values import MAKERS


def _keys(rng, lang, count):
    """`count` different keys of one kind: names, words for short lists, now and then numbered rooms."""
    kind = rng.random()
    if kind < 0.12:
        noun = rng.choice(PHRASES[lang]["lookup"]["numbered"])
        return [f"{noun} {i}" if lang == "en" else f"{noun}{i}" for i in rng.sample(range(1, 1000), count)]
    if kind < 0.5 and count <= 16:
        pool = words.ZH_WORDS if lang == "zh" else words.FIRST_NAMES if kind < 0.38 else words.WORDS
        return rng.sample(pool, count)
    # A dict and not a set: its order does not change from one process to the next.
    keys = {}
    while len(keys) < count:
        keys[words.full_name(rng, lang)] = None
    return list(keys)


def make(rng, lang, heldout=False, lines=None, questions=1, filler=None, missing=0.0):
    """A list of `lines` lines and `questions` questions about it; every answer is the line as it stands in the list.

    A share `missing` of the questions asks for what is not there. `filler` turns may come between the questions.
    """
    lines = lines or rng.randint(2, 12)
    phrases = PHRASES[lang]["lookup"]
    noun, kind = rng.choice(phrases["subjects"])
    keys = _keys(rng, lang, lines + 1)
    absent = keys.pop()
    colon = rng.choice(phrases["colon"])
    table = {key: f"{key}{colon}{MAKERS[kind](rng, lang)}" for key in keys}
    bullet = "- " if rng.random() < 0.1 else ""
    joint = "\n" if bullet else rng.choice(phrases["joint"])
    body = joint.join(bullet + line for line in table.values())
    if joint == ". ":
        body += "."
    turns = []
    for number in range(questions):
        key = absent if rng.random() < missing else rng.choice(keys)
        pool = phrases["ask next"] if number and rng.random() < 0.5 else phrases["ask"]
        if noun in phrases["ask by subject"] and rng.random() < 0.3:
            pool = phrases["ask by subject"][noun]
        question = vary(rng, lang, rng.choice(pool).format(n=noun, k=key), protect=(key,))
        if number and filler and rng.random() < 0.12:
            turns += filler(rng, lang)
        turns.append((question, table.get(key) or phrases["missing"].format(k=key)))
    if rng.random() < 0.12:
        return [(rng.choice(phrases["store"]) + "\n" + body, phrases["stored"]), *turns]
    intro = rng.choice(phrases["intro"]).format(n=noun)
    between = rng.choice(["\n", "\n\n", "\n", " "] if joint != "\n" else ["\n", "\n\n"])
    first = (intro + "\n" if intro else "") + body + between + turns[0][0]
    return [(first, turns[0][1]), *turns[1:]]


def make_missing(rng, lang, heldout=False):
    """A short list and a question about something that is not in it."""
    return make(rng, lang, missing=1.0)
