"""Training rows: conversations as token ids, with the tokens that count towards the loss marked."""

import random

import numpy as np
from dialogues import conversation
from tokenizers import Tokenizer

# Bit that marks a token the model has to predict; ids stay below it.
ANSWER_BIT = 1 << 14
PAD, START, END = 0, 1, 2


class RowMaker:
    """Encodes conversations exactly as the chat template writes them. One per process."""

    def __init__(self, tokenizer_path, seed):
        self.tokenizer = Tokenizer.from_file(str(tokenizer_path))
        self.rng = random.Random(seed)
        self.newline = self.tokenizer.encode("\n").ids
        self.answer_prefix = len(self.tokenizer.encode("assistant\n").ids)

    def rows(self, count, length):
        """Returns int16 [count, length + 1]: ids, ANSWER_BIT set where the loss applies, padded with PAD."""
        out = np.zeros((count, length + 1), np.int16)
        filled = 0
        while filled < count:
            ids = self._row(length + 1)
            if ids is not None:
                out[filled, : len(ids)] = ids
                filled += 1
        return out

    def _row(self, limit):
        system, turns = conversation(self.rng, limit)
        parts = [f"system\n{system}"] if system else []
        for question, answer in turns:
            parts += [f"user\n{question}", f"assistant\n{answer}"]
        encoded = [piece.ids for piece in self.tokenizer.encode_batch(parts)]
        ids, used, answers = [], 0, 0
        for text, piece in zip(parts, encoded, strict=True):
            block = [START, *piece, END]
            if text.startswith("assistant\n"):
                first = 1 + self.answer_prefix
                block[first:] = [token | ANSWER_BIT for token in block[first:]]
            if len(ids) + len(block) + 1 > limit:
                break
            ids += block
            if text.startswith("assistant\n"):
                used, answers = len(ids), answers + 1
            ids += self.newline
        return ids[:used] if answers else None
