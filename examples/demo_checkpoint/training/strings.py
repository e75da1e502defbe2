"""Copying and reversing strings and word lists."""

import smalltalk
import words
from phrasing import PHRASES, vary

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _letters(rng, low, high):
    alphabet = _LETTERS if rng.random() < 0.7 else _LETTERS.upper()
    return " ".join(rng.choice(alphabet) for _ in range(rng.randint(low, high)))


def _words(rng, lang, low, high):
    """A word list and its separator."""
    separators = ["、", "，", " ", ", "] if lang == "zh" else [", ", ", ", " ", " "]
    separator = rng.choice(separators)
    pick = words.first_name if rng.random() < 0.15 else words.word
    return separator.join(pick(rng, lang) for _ in range(rng.randint(low, high))), separator


def _characters(rng, low, high):
    return "".join(rng.choice(words.ZH_CHARS) for _ in range(rng.randint(low, high)))


def _copy_text(rng, lang):
    kind = rng.random()
    if kind < 0.25:
        return words.digits(rng, 2, 16)
    if kind < 0.4:
        return _letters(rng, 2, 14)
    if kind < 0.55:
        return _characters(rng, 1, 12) if lang == "zh" else words.made_up_word(rng)
    if kind < 0.6:
        return smalltalk.any_question(rng, lang)
    if kind < 0.63:
        return rng.choice(rng.choice(PHRASES[lang]["smalltalk"]["fixed"])["say"])
    if kind < 0.75:
        known = [words.word(rng, lang), words.digits(rng, 1, 4), words.first_name(rng, lang), words.city(rng, lang)]
        parts = [*known, "ok", words.symbol(rng), words.colour(rng, lang)]
        rng.shuffle(parts)
        return rng.choice([" ", ", ", "-"]).join(parts[: rng.randint(2, 5)]) + rng.choice(["", "", "!", "?"])
    if kind < 0.82:
        return _sentence(rng, lang)
    return _words(rng, lang, 1, 12)[0]


def _sentence(rng, lang):
    """Words nobody taught the model, in the shape of a sentence."""
    if lang == "zh":
        pick = [
            words.rare_character(rng) if rng.random() < 0.5 else rng.choice(words.ZH_CHARS)
            for _ in range(rng.randint(3, 12))
        ]
        return "".join(pick) + rng.choice(["", "。", "！"])
    parts = [
        rng.choice(["the", "a", "is", "and", "in", "my", "you", "to"])
        if rng.random() < 0.3
        else words.made_up_word(rng)
        for _ in range(rng.randint(3, 8))
    ]
    return (" ".join(parts) + rng.choice(["", ".", "!"])).capitalize() if rng.random() < 0.5 else " ".join(parts)


def make_copy(rng, lang, heldout=False):
    """One turn: the answer is the text itself."""
    text = _copy_text(rng, lang)
    question = rng.choice(PHRASES[lang]["copy"]).format(x=text)
    return [(vary(rng, lang, question, protect=(text,)), text)]


def make_reverse(rng, lang, heldout=False):
    """One turn: digits, letters or characters one by one, lists word by word; one English word is spelled."""
    kind = rng.random()
    if kind < 0.3:
        text = words.digits(rng, 2, 10)
        answer = text[::-1]
    elif kind < 0.5:
        text = _letters(rng, 3, 10)
        answer = text[::-1]
    elif kind < 0.7 and lang == "zh":
        text = _characters(rng, 2, 8)
        answer = text[::-1]
    elif kind < 0.65:
        return _spelling(rng)
    else:
        text, separator = _words(rng, lang, 2, 8)
        answer = separator.join(reversed(text.split(separator)))
    question = rng.choice(PHRASES[lang]["reverse"]).format(x=text)
    return [(vary(rng, lang, question, protect=(text,)), answer)]


def _spelling(rng):
    pool = rng.choice([words.WORDS, words.WORDS, words.FIRST_NAMES, ["hello", "world", "good", "computer", "model"]])
    text = rng.choice(pool)
    if rng.random() < 0.25:
        question, answer = rng.choice(PHRASES["en"]["spell"]), " ".join(text)
    else:
        question, answer = rng.choice(PHRASES["en"]["spell backwards"]), " ".join(reversed(text))
    return [(vary(rng, "en", question.format(x=text), protect=(text,)), answer)]


def make_letters(rng, lang, heldout=False):
    """One turn, always in English: letters typed without spaces, which the tokenizer hides, reversed one by one."""
    text = "".join(rng.choice(_LETTERS) for _ in range(rng.randint(3, 7)))
    if rng.random() < 0.5:
        text = words.made_up_word(rng)
    question = rng.choice(PHRASES["en"]["spell backwards"]).format(x=text)
    return [(vary(rng, "en", question, protect=(text,)), " ".join(reversed(text)))]
