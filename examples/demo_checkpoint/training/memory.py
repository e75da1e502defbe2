"""Facts that the user states in one turn and asks for in a later one."""

from phrasing import PHRASES, vary
from values import MAKERS


def _facts(rng, lang):
    """The facts a conversation can be about: the fixed ones, and one person or animal with a name."""
    phrases = PHRASES[lang]["memory"]
    who = rng.choice(phrases["who"])
    named = {}
    for part, text in phrases["named"].items():
        named[part] = [t.replace("{p}", who) for t in text] if isinstance(text, list) else text.replace("{p}", who)
    return phrases["facts"] | {"named": named}


def make(rng, lang, heldout=False, filler=None, fillers=(0, 2), questions=1):
    """States one to four facts, lets `filler(rng, lang)` turns pass, then asks `questions` times."""
    facts = _facts(rng, lang)
    stated = rng.sample(list(facts), rng.randint(1, 4))
    values = {name: MAKERS[facts[name]["value"]](rng, lang) for name in stated}
    turns = [_statement(rng, lang, facts[name], values[name]) for name in stated]
    if len(turns) > 1 and rng.random() < 0.25:
        # Two facts in one message get both acknowledgements.
        (first, yes), (second, noted) = turns[:2]
        joint = " " if lang == "en" else ""
        first = first if first[-1] in ".!。！" else first + ("." if lang == "en" else "。")
        turns[:2] = [(first + joint + second, yes + joint + noted)]
    for _ in range(rng.randint(*fillers) if filler else 0):
        turns[rng.randint(0, len(turns)) : 0] = filler(rng, lang)
    if rng.random() < 0.08:
        # A correction: the later statement counts.
        name = rng.choice(stated)
        values[name] = MAKERS[facts[name]["value"]](rng, lang)
        turns.append(_statement(rng, lang, facts[name], values[name]))
    for _ in range(questions):
        turns.append(_question(rng, lang, facts, values))
    if questions == 1 and len(turns) == 2 and rng.random() < 0.2:
        return [(turns[0][0] + " " + turns[1][0] if lang == "en" else turns[0][0] + turns[1][0], turns[1][1])]
    return turns


def _statement(rng, lang, fact, value):
    text = rng.choice(fact["say"]).format(v=value)
    return vary(rng, lang, text, protect=("I", value)), fact["noted"].format(v=value)


def _question(rng, lang, facts, values):
    name = rng.choice(list(facts)) if rng.random() < 0.08 else rng.choice(list(values))
    fact = facts[name]
    answer = fact["answer"].format(v=values[name]) if name in values else fact["unknown"]
    return vary(rng, lang, rng.choice(fact["ask"])), answer
