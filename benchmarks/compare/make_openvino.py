"""OpenVINO files of a random checkpoint, in OpenVINO's environment.

    python make_openvino.py int4|int8 CHECKPOINT OUT

int8 is asymmetric per channel; int4 symmetric by groups of 128 with embedding and head in int8: what optimum-intel
does. Prints the bytes that one token reads.
"""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

VOCAB = 151936


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE of that many made-up tokens: the pipeline needs one, the prompts do not."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab, merges = {letter: index for index, letter in enumerate(letters)}, []
    for parts in itertools.chain(itertools.product(letters, letters), itertools.product(letters, letters, letters[:8])):
        if len(vocab) == VOCAB - 1:
            break
        left, right = "".join(parts[:-1]), parts[-1]
        vocab[left + right] = len(vocab)
        merges.append((left, right))
    vocab["<|endoftext|>"] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    wrapped.save_pretrained(folder)


def token_bytes(folder: Path, config: dict) -> int:
    """All weights once; of an embedding that is not the head as well, one row, which is nothing."""
    table = 0 if config["tie_word_embeddings"] else config["vocab_size"] * config["hidden_size"]  # int8
    return (folder / "openvino_model.bin").stat().st_size - table


kind, checkpoint, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
if not (checkpoint / "tokenizer.json").is_file():
    write_tokenizer(checkpoint)
partial = out.with_name(out.name + ".partial")
shutil.rmtree(partial, ignore_errors=True)
options = ["--sym", "--group-size", "128", "--ratio", "1.0"] if kind == "int4" else []
subprocess.run(
    [
        *(str(Path(sys.executable).with_name("optimum-cli")), "export", "openvino", "--model", str(checkpoint)),
        *("--task", "text-generation-with-past", "--weight-format", kind, *options, str(partial)),
    ],
    check=True,
    stdout=sys.stderr,
)
partial.rename(out)
print(json.dumps({"token_bytes": token_bytes(out, json.loads((checkpoint / "config.json").read_text()))}))
