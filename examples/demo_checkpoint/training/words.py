"""Words of the demo tasks: known ones from the phrase files, and ones made up from letters and characters."""

from phrasing import PHRASES

_EN, _ZH = PHRASES["en"]["words"], PHRASES["zh"]["words"]
FIRST_NAMES, LAST_NAMES, CITIES = _EN["first names"], _EN["last names"], _EN["cities"]
WORDS = _EN["colours"] + _EN["animals"] + _EN["foods"] + _EN["things"]
ZH_WORDS = _ZH["colours"] + _ZH["animals"] + _ZH["foods"] + _ZH["things"]
ZH_CHARS = _ZH["characters"]

# Characters that the tokenizer may have to spell in bytes.
_ZH_OTHER = (
    "雷梦琪思雨涵子轩天悦诗琳博文浩然晓东海燕国庆志强春梅冬雪爱民永康世界"
    "和平朋友时间生活学习工作快乐幸福今年明年昨晚早晨公园街道"
)
_SYMBOLS = list("éüñçøßäöàêλπЖд€£★♥✓😀🎉🚀👍😊🌍🐱")
_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
# Letters about as frequent as in English text.
_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
_LETTER_SHARE = [12, 9, 8, 8, 7, 7, 6, 6, 6, 4, 4, 3, 3, 3, 2, 2, 2, 2, 1, 2, 2, 1, 1, 1, 1, 1]


def rare_character(rng):
    """A Chinese character that may lie outside the vocabulary."""
    return rng.choice(_ZH_OTHER) if rng.random() < 0.6 else chr(rng.randint(0x4E00, 0x9FA5))


def symbol(rng):
    return rng.choice(_SYMBOLS)


def made_up_word(rng):
    """A word outside the pools, so that copying does not depend on known words."""
    if rng.random() < 0.4:
        return "".join(rng.choices(_LETTERS, _LETTER_SHARE, k=rng.randint(2, 9)))
    word = "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(1, 3)))
    return word + rng.choice(["", "", "n", "r", "s", "l", "x", "th"])


def first_name(rng, lang):
    if lang == "zh":
        if rng.random() < 0.08:
            return rng.choice("小小小老阿") + (
                rng.choice(_ZH["given names"]) if rng.random() < 0.6 else rare_character(rng)
            )
        given = [
            rare_character(rng) if rng.random() < 0.12 else rng.choice(_ZH["given names"])
            for _ in range(rng.choice([1, 1, 2]))
        ]
        return rng.choice(_ZH["surnames"]) + "".join(given)
    return made_up_word(rng).capitalize() if rng.random() < 0.15 else rng.choice(FIRST_NAMES)


def full_name(rng, lang):
    if lang == "zh":
        return first_name(rng, lang)
    last = made_up_word(rng).capitalize() if rng.random() < 0.06 else rng.choice(LAST_NAMES)
    return f"{rng.choice(FIRST_NAMES)} {last}"


def _pick(rng, pool, lang, unknown=0.1):
    """A word from the pool, or now and then one that is in no pool."""
    if rng.random() >= unknown:
        return rng.choice(pool)
    return rare_character(rng) + rare_character(rng) if lang == "zh" else made_up_word(rng)


def word(rng, lang):
    return _pick(rng, WORDS if lang == "en" else ZH_WORDS, lang, 0.15)


def city(rng, lang):
    name = _pick(rng, PHRASES[lang]["words"]["cities"], lang)
    return name[0].upper() + name[1:]


def colour(rng, lang):
    return _pick(rng, PHRASES[lang]["words"]["colours"], lang)


def animal(rng, lang):
    return _pick(rng, PHRASES[lang]["words"]["animals"], lang)


def food(rng, lang):
    return _pick(rng, PHRASES[lang]["words"]["foods"], lang)


def job(rng, lang):
    return _pick(rng, PHRASES[lang]["words"]["jobs"], lang)


def digits(rng, low, high):
    """A string of low..high decimal digits; leading zeros are allowed, it is a code and not a number."""
    return "".join(rng.choice("0123456789") for _ in range(rng.randint(low, high)))
