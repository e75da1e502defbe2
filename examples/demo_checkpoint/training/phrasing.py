"""The phrases of both languages, and small changes people make without thinking: case, punctuation, a polite word."""

import json
from pathlib import Path

PHRASES = {
    lang: json.loads((Path(__file__).parent / f"phrases_{lang}.json").read_text(encoding="utf-8"))
    for lang in ("en", "zh")
}

_ZH_TO_ASCII = str.maketrans({"？": "?", "，": ",", "：": ":", "。": "."})


def vary(rng, lang, text, protect=()):
    """Returns `text` with a few harmless changes; strings in `protect` (what must be copied) stay as they are."""
    if lang == "zh":
        if rng.random() < 0.12 and not text.startswith(("请", "你好")):
            text = rng.choice(PHRASES[lang]["before"]) + text
        if rng.random() < 0.2 and text[-1] in "？。" and not text.endswith(tuple(protect)):
            text = text[:-1]
        if rng.random() < 0.1 and not any(p.translate(_ZH_TO_ASCII) != p for p in protect):
            text = text.translate(_ZH_TO_ASCII)
        return text
    if rng.random() < 0.25 and not text.startswith(tuple(protect)):
        text = text[0].lower() + text[1:]
    if rng.random() < 0.12:
        text = rng.choice(PHRASES[lang]["before"]) + text
    if text[-1] in "?." and not text.endswith(tuple(protect)):
        draw = rng.random()
        if draw < 0.06:
            text = text[:-1] + _ending(rng, text[-1])
        elif draw < 0.25:
            text = text[:-1]
    return text


def _ending(rng, mark):
    return rng.choice([", please" + mark, " please", " please?", "?", " ?", ", thanks."])
