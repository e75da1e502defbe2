"""The demo package with a vocabulary of channels: the model copies digits, and these have the texts of tags here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
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

TURNS = {
    "<|im_start|>": "<|turn>",
    "assistant": "model",
    "1": "<|channel>",
    "2": "thought\n",
    "3": "<channel|>",
    "4": "<|tool_call>",
    "5": "call:add",
    "6": "{a:1}",
    "7": "<tool_call|>",
    "8": "<|tool_response>",
    "9": "hm",
}
TURN_TEMPLATE = (
    "{% for message in messages %}<|turn>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn>model\n{% endif %}"
)


def with_channels(package: Path, folder: Path, texts: Mapping[str, str] = TEXTS, template: str = TEMPLATE) -> Path:
    """A copy of the demo package whose tokenizer has other texts for some ids."""
    shutil.copytree(package, folder)
    for name in ("tokenizer", "hmquant/hf_config", "."):
        if (folder / name / "tokenizer.json").exists():
            _rename(folder / name, texts, template)
    return folder


def _rename(folder: Path, texts: Mapping[str, str], template: str) -> None:
    path = folder / "tokenizer.json"
    made = json.loads(path.read_text(encoding="utf-8"))
    words = made["model"]["vocab"]
    added = {token["id"]: token for token in made["added_tokens"]}
    for old, text in texts.items():
        number = words[text] = words.pop(old)
        added[number] = {**added[1], "id": number, "content": text, "special": text.startswith(("<|", "["))}
    merges = made["model"]["merges"]
    made["model"]["merges"] = [pair for pair in merges if not texts.keys() & {*pair, "".join(pair)}]
    made["added_tokens"] = [added[number] for number in sorted(added)]
    path.unlink()  # a link to the tokenizer of the package that it was copied from
    path.write_text(json.dumps(made, ensure_ascii=False), encoding="utf-8")
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def with_turns(package: Path, folder: Path) -> Path:
    """As `with_channels`, of Gemma 4."""
    return with_channels(package, folder, TURNS, TURN_TEMPLATE)


def echo(digits: str, texts: Mapping[str, str] = TEXTS) -> str:
    """A question whose answer is these digits, in the words of this vocabulary."""
    return "Echo: " + "".join(texts.get(digit, digit) for digit in digits)
