"""How far activations of a trained model are from what the two block formats keep of them (docs/numerics.md section 3).

    python benchmarks/block_formats.py [--checkpoint DIR] [--prompts FILE] [--count 40]

The checkpoint, by default that of the demo, is compiled as float16, and the numpy reference runs prompts with their
answers through it, by default those of the demo's tests. What every Linear reads is rounded by both formats. Then the
checkpoint is compiled as w8a8h1_sefp with each of them, and the logits of every token compared with those of float16.
Prints two tables in Markdown. Needs `pip install '.[compile,chat]'`.
"""

import argparse
import json
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tcim_lite.llm import encode_chat, load_tokenizer
from tcim_lite.models.common.profiles import ACTIVATIONS
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.reference.arithmetic import quantize_activations
from tcim_lite.models.reference.model import Reference, ReferenceCache
from tcim_lite.models.weights.hidden_exponent import codes_of

ROOT = Path(__file__).parent.parent
GROUP = 64
MOST_TOKENS = 100  # of a prompt: the reference is slow
FORMATS: dict[str, Callable] = dict(zip(ACTIVATIONS, (quantize_activations, codes_of), strict=True))
# The sums that the first table is made of: squares of x and of what each format loses, and counts.
Sums = dict[str, float]


class Recorder(Reference):
    """The reference model, which adds up what its Linears read."""

    def __init__(self, package: Path) -> None:
        super().__init__(package)
        self.sums: dict[str, Sums] = defaultdict(lambda: defaultdict(float))

    def _linear(self, x, role, layer=None, bias=None):
        wide = x.astype(np.float32)
        add_errors(self.sums[role.id], wide)
        return super()._linear(x, role, layer, bias)


def add_errors(sums: Sums, x: NDArray[np.float32]) -> None:
    """Adds the rows' squares, their errors in both formats, and counts of groups."""
    sums["groups"] += x.size // GROUP
    sums["squares"] += np.square(x, dtype=np.float64).sum()
    for name, codes_and_exponents in FORMATS.items():
        codes, exponents = codes_and_exponents(x)
        kept = codes.reshape(*exponents.shape, GROUP) * np.ldexp(1.0, exponents)[..., None]
        sums[name] += np.square(kept.reshape(x.shape) - x).sum()
        lowest = (codes == -128).reshape(-1, GROUP).any(axis=1)
        sums[f"{name} lowest"] += lowest.sum()
        sums[f"{name} floor"] += (exponents < -20).sum()


def logits_of(package: Path, sequences: list[list[int]]) -> NDArray[np.float32]:
    """[tokens of all sequences, V]."""
    reference = Reference(package)
    return np.concatenate([reference.run(tokens, ReferenceCache()) for tokens in sequences])


def sequences_of(checkpoint: Path, prompts: list[dict]) -> Iterator[list[int]]:
    """Prompts with their answers, as tokens."""
    tokenizer = load_tokenizer(checkpoint)
    for prompt in prompts:
        answer = tokenizer.encode(prompt["answer"], add_special_tokens=False)
        yield [*encode_chat(tokenizer, prompt["messages"]), *answer]


def print_errors(sums: dict[str, Sums]) -> None:
    """The first table."""
    print("| read by | groups | error of a8 | of hidden exponents | ratio | groups with -128 | below 2^-20 in a8 |")
    print("|---|---|---|---|---|---|---|")
    total: Sums = defaultdict(float)
    for name, row in [*sums.items(), ("all", total)]:
        if row is not total:
            for key, value in row.items():
                total[key] += value
        ours, theirs = (np.sqrt(row[format] / row["squares"]) for format in ACTIVATIONS)
        shares = [row[key] / row["groups"] for key in ("hidden_exponent lowest", "a8 floor")]
        print(
            f"| {name} | {row['groups']:,.0f} | {ours:.3%} | {theirs:.3%} | {theirs / ours:.2f} | "
            + " | ".join(f"{share:.2%}" for share in shares)
            + " |"
        )


def print_logits(exact: NDArray[np.float32], found: dict[str, NDArray[np.float32]]) -> None:
    """The second table."""
    print("| activations | logits: rms of the difference to float16 | of their deviation | same greedy token |")
    print("|---|---|---|---|")
    for name, logits in found.items():
        rms = np.sqrt(np.square(logits - exact).mean())
        same = (logits.argmax(axis=1) == exact.argmax(axis=1)).mean()
        print(f"| {name} | {rms:.4f} | {rms / exact.std():.2%} | {same:.2%} of {len(exact):,} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkpoint", type=Path, default=ROOT / "examples" / "demo_checkpoint")
    parser.add_argument("--prompts", type=Path, default=ROOT / "tests" / "data" / "demo_prompts.json")
    parser.add_argument("--count", type=int, default=40, help="prompts, spread over the file, of at most 100 tokens")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    prompts = json.loads(arguments.prompts.read_text(encoding="utf-8"))
    prompts = [prompt for prompt in prompts if prompt["prompt_tokens"] <= MOST_TOKENS]
    prompts = prompts[:: max(1, len(prompts) // arguments.count)][: arguments.count]
    with tempfile.TemporaryDirectory() as folder:

        def compiled(name: str, **options: str) -> Path:
            output = Path(folder) / name
            compile_checkpoint(CompileOptions(checkpoint=arguments.checkpoint, output=output, **options))
            return output

        floats = compiled("float16", quant="float16")
        sequences = list(sequences_of(arguments.checkpoint, prompts))
        recorder = Recorder(floats)
        exact = np.concatenate([recorder.run(tokens, ReferenceCache()) for tokens in sequences])
        print(f"{len(sequences)} prompts with answers, {len(exact):,} tokens\n")
        print_errors(recorder.sums)
        print()
        quantised = {
            name: logits_of(compiled(name, quant="w8a8h1_sefp", activations=name), sequences) for name in ACTIVATIONS
        }
        print_logits(exact, quantised)


if __name__ == "__main__":
    main()
