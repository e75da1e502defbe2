"""What a fact or a list line can say: one maker `(rng, lang) -> str` per kind of value named in the phrase files."""

import words


def _price(rng, lang):
    amount = rng.choice([rng.randint(1, 20), rng.randint(1, 999)])
    return f"{amount}{rng.choice(['', '元'])}" if lang == "zh" else f"{amount}{rng.choice(['', ' dollars'])}"


MAKERS = {
    "name": words.first_name,
    "city": words.city,
    "colour": words.colour,
    "animal": words.animal,
    "food": words.food,
    "job": words.job,
    "word": words.word,
    "price": _price,
    "age": lambda rng, _: str(rng.randint(5, 99)),
    "number": lambda rng, _: str(rng.randint(0, 999)),
    "short number": lambda rng, _: words.digits(rng, 2, 3),
    "code": lambda rng, _: words.digits(rng, 4, 4),
    "phone": lambda rng, _: words.digits(rng, 5, 8),
}
