"""The demo package with a vocabulary of channels: the model copies digits, and these have the texts of tags here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

# The texts of tokens; the demo model begins replies behind "assistant" and a line end, which are two tokens.
TEXTS = {
    "<|im_start|>": "<|start|>",
    "assistant": "assist",
    "\u010a": "ant",
    "1": "<|channel|>",
    "2": "analysis",
    "3": "<|message|>",
    "4": "<|end|>",
    "5": "final",
    "6": "commentary to=functions.add ",
    "7": '{"a": 1}',
    "8": "<|call|>",
    "9": "hm",
}
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message.role }}ant{{ message.content }}<|im_end|>ant{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)


def with_channels(package: Path, folder: Path) -> Path:
    """A copy of the demo package whose tokenizer has other texts for some ids."""
    shutil.copytree(package, folder)
    for name in ("tokenizer", "hmquant/hf_config", "."):
        if (folder / name / "tokenizer.json").exists():
            _rename(folder / name)
    return folder


def _rename(folder: Path) -> None:
    path = folder / "tokenizer.json"
    made = json.loads(path.read_text(encoding="utf-8"))
    words = made["model"]["vocab"]
    added = {token["id"]: token for token in made["added_tokens"]}
    for old, text in TEXTS.items():
        number = words[text] = words.pop(old)
        added[number] = {**added[1], "id": number, "content": text, "special": text.startswith("<|")}
    merges = made["model"]["merges"]
    made["model"]["merges"] = [pair for pair in merges if not TEXTS.keys() & {*pair, "".join(pair)}]
    made["added_tokens"] = [added[number] for number in sorted(added)]
    path.unlink()  # a link to the tokenizer of the package that it was copied from
    path.write_text(json.dumps(made, ensure_ascii=False), encoding="utf-8")
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")


def echo(digits: str) -> str:
    """A question whose answer is these digits, in the words of this vocabulary."""
    return "Echo: " + "".join(TEXTS.get(digit, digit) for digit in digits)
