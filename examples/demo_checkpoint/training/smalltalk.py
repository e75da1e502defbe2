"""Greetings, who the model is, and a polite no to everything else."""

import words
from phrasing import PHRASES, vary


def make(rng, lang, heldout=False):
    """One turn of small talk, or a question outside the model's tasks."""
    phrases = PHRASES[lang]["smalltalk"]
    if rng.random() < 0.5:
        chosen = rng.choice(phrases["fixed"])
        prompt = rng.choice(chosen["say"])
        if chosen is not phrases["fixed"][0] and prompt[-1] in "?.？。" and rng.random() < 0.2:
            prompt = rng.choice(phrases["greeting"]) + prompt
        return [(_plain(rng, lang, prompt), chosen["answer"])]
    if rng.random() < 0.06:
        if lang == "en":
            noise = " ".join(words.made_up_word(rng) for _ in range(rng.randint(1, 5)))
        else:
            noise = "".join(rng.choices(words.ZH_CHARS, k=rng.randint(4, 9)))
        return [(noise, phrases["refusal"])]
    return [(vary(rng, lang, any_question(rng, lang)), phrases["refusal"])]


def any_question(rng, lang):
    """A question that none of the tasks answers."""
    phrases = PHRASES[lang]["smalltalk"]
    if rng.random() < 0.08:
        return rng.choice(phrases["arithmetic"]).format(a=rng.randint(1, 999), b=rng.randint(1, 99))
    topic, other = rng.sample(phrases["topics"], 2)
    if rng.random() < 0.3:
        topic = words.word(rng, lang)
    return rng.choice(phrases["unknown"]).format(t=topic, u=other)


def _plain(rng, lang, text):
    """Case and final punctuation only: a polite prefix would turn 'Help' into something else."""
    if lang == "en" and rng.random() < 0.4:
        text = text.lower()
    if rng.random() < 0.3:
        text = text.rstrip("?!.？！。")
    return text
