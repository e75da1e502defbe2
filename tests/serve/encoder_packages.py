"""Tiny encoders with random weights: their checkpoints, their ONNX exports, and what transformers computes."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
import warm_python
from first_output import First
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

WORDS = "what is the capital of france paris in a big city london rain 12 30 plus 42 ? . , bear good bad"
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37,
    "max_position_embeddings": 66,
}  # fmt: skip
DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37, "max_position_embeddings": 66}
# Kind of model: how transformers names it, its config, and its tokenizer's special tokens.
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
ROBERTA_TOKENS = ["<s>", "<pad>", "</s>", "<unk>"]
ENCODERS = {
    "bert": ("Bert", SIZES, BERT_TOKENS),
    "distilbert": ("DistilBert", DISTIL, BERT_TOKENS),
    "roberta": ("Roberta", SIZES | {"pad_token_id": 1, "type_vocab_size": 1}, ROBERTA_TOKENS),
    "xlm-roberta": ("XLMRoberta", SIZES | {"pad_token_id": 1, "type_vocab_size": 1}, ROBERTA_TOKENS),
}


@dataclass
class TinyEncoder:
    """An encoder, and its oracle.

    Attributes:
        folder: checkpoint with `onnx/model.onnx`, as optimum lays it out.
        model: of transformers, in float32.
        tokenizer: of `tokenizers`.
        inputs: names of those of the export.
    """

    folder: Path
    model: transformers.PreTrainedModel
    tokenizer: Tokenizer
    inputs: list[str]

    def compile(self, output: Path, *options: str) -> Path:
        command = ["compile", str(self.folder / "onnx" / "model.onnx"), "-o", str(output), "--quant", "float32"]
        done = warm_python.run("-m", "tcim_lite", *command, *options)
        assert done.returncode == 0, done.stderr
        return output

    def hidden(self, *texts: str) -> np.ndarray:
        """The first output for a text or a pair, without padding: [tokens, H], or logits [N]."""
        encoding = self.tokenizer.encode(*texts)
        given = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask}
        if "token_type_ids" in self.inputs:
            given["token_type_ids"] = encoding.type_ids
        with torch.no_grad():
            return self.model(**{name: torch.tensor([ids]) for name, ids in given.items()})[0][0].numpy()


def tokenizer_of(special: list[str]) -> Tokenizer:
    begin, end = ("[CLS]", "[SEP]") if "[CLS]" in special else ("<s>", "</s>")
    words = [*special, *WORDS.split(" "), *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
    words += list("abcdefghijklmnopqrstuvwxyz")
    unknown = special[1] if "[CLS]" in special else special[3]
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(dict.fromkeys(words))}, unk_token=unknown))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    ids = [(token, made.token_to_id(token)) for token in (begin, end)]
    if begin == "[CLS]":
        form = {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B:1 [SEP]:1"}
    else:
        form = {"single": "<s> $A </s>", "pair": "<s> $A </s> </s> $B </s>"}
    made.post_processor = processors.TemplateProcessing(**form, special_tokens=ids)
    made.add_special_tokens(special)
    return made


def make_encoder(folder: Path, kind: str, *, labels: int | None = None, pooling: str | None = None, **config):
    """A checkpoint with random weights and its export; with `labels`, a classifier."""
    name, sizes, special = ENCODERS[kind]
    tokenizer = tokenizer_of(special)
    vocabulary = tokenizer.get_vocab_size()
    if labels is not None:
        config["num_labels"] = labels
    made = getattr(transformers, f"{name}Config")(vocab_size=vocabulary, **{**sizes, **config})
    torch.manual_seed(sum(kind.encode()) + (labels or 0))
    model = getattr(transformers, f"{name}{'Model' if labels is None else 'ForSequenceClassification'}")(made).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4)  # random weights of 0.02 make all texts alike
    (folder / "onnx").mkdir(parents=True)
    made.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64}))
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        words = {"word_embedding_dimension": 32, f"pooling_mode_{pooling}": True}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(words))
        names = ["Transformer", "Pooling", "Normalize"]
        listed = [{"idx": i, "name": str(i), "type": f"sentence_transformers.models.{n}"} for i, n in enumerate(names)]
        (folder / "modules.json").write_text(json.dumps(listed))
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if kind == "bert" else [])]
    example = {key: torch.ones(2, 8, dtype=torch.int64) for key in inputs}
    example["attention_mask"][1, 5:] = 0  # without padding the export would leave the mask out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            First(model, inputs).eval(),
            tuple(example.values()),
            str(folder / "onnx" / "model.onnx"),
            input_names=inputs,
            output_names=["last_hidden_state" if labels is None else "logits"],
            dynamic_axes={key: {0: "batch_size", 1: "sequence_length"} for key in inputs},
            dynamo=False,
            opset_version=17,
        )
    return TinyEncoder(folder, model, tokenizer, inputs)
