"""Addition, subtraction and small multiplication."""

import words
from phrasing import PHRASES, vary


def reserved(a, b):
    """Operand pairs that training never sees, so that held-out sums are new: one in sixteen, none of one digit only."""
    return max(a, b) > 9 and (a * 131 + b * 71) % 16 == 5


def _number(rng):
    size = rng.choice([1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4])
    return rng.randint(0 if size == 1 else 10 ** (size - 1), 10**size - 1)


def _operands(rng, op, heldout):
    if op == "×":
        if rng.random() < 0.6:
            return rng.randint(0, 12), rng.randint(0, 12)
        pair = [rng.randint(2, 9), rng.randint(11, 99)]
        rng.shuffle(pair)
        return tuple(pair)
    while True:
        a, b = _number(rng), _number(rng)
        if op == "-" and a < b and rng.random() < 0.8:
            a, b = b, a
        if reserved(a, b) == heldout:
            return a, b


def make(rng, lang, heldout=False):
    """One turn: a question and its full equation as the answer."""
    op = rng.choice("+++--×")
    templates = PHRASES[lang]["arithmetic"][op]
    if rng.random() < 0.06:
        a, b = rng.randint(0, 20), rng.randint(0, 12)
        names = PHRASES[lang]["number words"]
        question = rng.choice(templates["in words"]).format(a=names[a], b=names[b])
        return [(vary(rng, lang, question), _equation(a, op, b))]
    a, b = _operands(rng, op, heldout)
    if rng.random() < 0.12:
        pools = PHRASES[lang]["words"]
        # A plural "s" fits every Chinese noun (there is none) but not every English one.
        things = [t for t in pools["foods"] + pools["things"] if t[-1] not in "sxy"]
        thing, other = rng.sample(things, 2)
        story = rng.choice(templates["story"]).format(a=a, b=b, t=thing, u=other, n=words.first_name(rng, lang))
        return [(vary(rng, lang, story), _equation(a, op, b))]
    question = rng.choice(templates["plain"]).format(a=a, b=b)
    return [(vary(rng, lang, question, protect=(str(a), str(b))), _equation(a, op, b))]


def _equation(a, op, b):
    value = {"+": a + b, "-": a - b, "×": a * b}[op]
    return f"{a} {op} {b} = {value}"
