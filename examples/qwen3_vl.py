"""Asks a question about an image, step by step as the vendor's Qwen3-VL example does.

Qwen2.5-VL, Qwen2-VL, Qwen3.5, PaddleOCR-VL and GLM-OCR work too.

tcim-lite compile HF_DIR -o OUT --vision
python examples/qwen3_vl.py OUT --image photo.jpg --question "What is this?"
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

import tcim_lite.runtime as tcim
from tcim_lite.console import run_program
from tcim_lite.llm import (
    Package,
    clear_carried,
    context_length,
    encode_chat,
    lanes_of,
    last_logits,
    load_pair,
    load_tokenizer,
    print_answer,
)
from tcim_lite.llm.images import normalised, read_image
from tcim_lite.llm.vision import VisionTower


class VisionLanguageModel:
    """Vision graphs, and prefill and decode with one copy of the weights and of the caches."""

    def __init__(self, package: Package):
        weights = tcim.WeightManager(0)
        self.vision = VisionTower(package.folder, package.name, weights)
        self.prefill, self.decode = load_pair(package.prefill_path, package.decode_path, weights)
        self.context_length = context_length(self.prefill)
        self.embedding = package.embedding_for(self.prefill)
        self.num_stacks = len(lanes_of(self.prefill)[0].deepstack)
        config = json.loads((package.tokenizer_folder / "config.json").read_text(encoding="utf-8"))
        self.image_token = config["image_token_id"]

    def positions(self, tokens: np.ndarray, rows: int, columns: int) -> np.ndarray:
        """[3, N]: time, height and width of each token. Text counts on; an image of rows x columns lies at one time."""
        found, following, index = np.zeros((3, len(tokens)), np.int32), 0, 0
        while index < len(tokens):
            if tokens[index] != self.image_token:
                found[:, index], following, index = following, following + 1, index + 1
                continue
            place = slice(index, index + rows * columns)
            found[1:, place] = np.indices((rows, columns)).reshape(2, -1)
            found[:, place] += following
            following, index = following + max(rows, columns), index + rows * columns
        return found

    def run(self, module: tcim.Module, rows, positions, stacks, valid: int, current: int) -> np.ndarray:
        """Sets the inputs, padded to what the graph takes, and returns the logits after the last row."""
        (lane,) = lanes_of(module)
        first = module.get_input_name(0)
        length = module.get_input_info(first).shape[1]

        def padded(values: np.ndarray) -> np.ndarray:
            return np.concatenate([values, np.zeros((length - current, *values.shape[1:]), values.dtype)])

        module.set_input(first, padded(rows)[None])
        axes = [np.stack([padded(axis) for axis in positions])[:, None]] if lane.joined else map(padded, positions)
        for name, values in zip(lane.positions, axes, strict=True):
            module.set_input(name, values)
        for name, stack in zip(lane.deepstack, stacks, strict=True):
            module.set_input(name, padded(stack)[None])
        lane.set_linear_mask(module, current)
        module.set_input(lane.valid, np.array([valid], np.int32))
        module.set_input(lane.current, np.array([current], np.int32))
        module.run()
        module.sync()
        return last_logits(module.get_output(module.get_output_name(0)).numpy(), current)

    def answer(
        self, tokens: np.ndarray, features: list[np.ndarray], grid: tuple[int, int], stop_tokens, limit: int | None
    ):
        """Yields tokens after a prompt, greedily, until a stop token, the limit or a full context."""
        images = tokens == self.image_token
        rows = self.embedding[tokens]
        rows[images] = features[0]  # masked_scatter
        stacks = [np.zeros_like(rows) for _ in range(self.num_stacks)]
        for stack, values in zip(stacks, features[1:], strict=True):
            stack[images] = values
        positions = self.positions(tokens, *grid)
        delta = int(positions.max()) + 1 - len(tokens)

        clear_carried(self.prefill)
        chunk, context = self.prefill.get_input_info(self.prefill.get_input_name(0)).shape[1], 0
        while context < len(tokens):
            part = slice(context, context + chunk)
            here = [stack[part] for stack in stacks]
            logits = self.run(self.prefill, rows[part], positions[:, part], here, context, len(rows[part]))
            context += len(rows[part])
        nothing, count = [np.zeros((1, rows.shape[1]), rows.dtype) for _ in stacks], 0
        while (token := int(logits.argmax())) not in stop_tokens:
            yield token
            count += 1
            if count == limit or context == self.context_length:
                return
            where = np.full((3, 1), context + delta, np.int32)
            logits = self.run(self.decode, self.embedding[token : token + 1], where, nothing, context, 1)
            context += 1


def pixels_of(path: Path, tower: VisionTower, processor: Path) -> np.ndarray:
    """[3, height, width]: the whole image, the right way up, stretched to what the tower takes.

    `processor` is a preprocessor_config.json with the means and deviations of colours; without it they are 0.5.
    """
    image = read_image(path).convert("RGB")
    known = json.loads(processor.read_text(encoding="utf-8")) if processor.is_file() else {}
    mean, deviation = (known.get(key) or [0.5] * 3 for key in ("image_mean", "image_std"))
    return normalised(image, tower.fitting(image.height, image.width), mean, deviation).astype(np.float16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="folder that `tcim-lite compile --vision` wrote")
    parser.add_argument("--image", type=Path, required=True, help="any file that Pillow reads")
    parser.add_argument("--question", default="Describe this image.", help="about the image, by default to describe it")
    parser.add_argument("--name", help="package name, when the folder holds several")
    parser.add_argument("--max-new-tokens", type=int, help="default: until eos or a full context")
    parser.add_argument("--show-tokens", action="store_true", help="print the answer's ids as well")
    args = parser.parse_args()
    if args.max_new_tokens is not None and args.max_new_tokens < 1:
        parser.error(f"--max-new-tokens {args.max_new_tokens}: expected at least 1")
    package = Package.open(args.package, args.name)
    tokenizer = load_tokenizer(package.tokenizer_folder)
    model = VisionLanguageModel(package)
    processor = package.tokenizer_folder / "preprocessor_config.json"
    pixels = pixels_of(args.image, model.vision, processor)
    features = model.vision.see(pixels)
    grid = tuple(side // model.vision.cell for side in pixels.shape[1:])
    text = f"<|vision_start|><|image_pad|><|vision_end|>{args.question}"
    tokens = np.array(encode_chat(tokenizer, [{"role": "user", "content": text}]))
    pad = np.flatnonzero(tokens == model.image_token)
    if len(pad) != 1:
        hint = "leave <|image_pad|> out of the question" if len(pad) else "the tokenizer lacks <|image_pad|>"
        sys.exit(f"error: the prompt has {len(pad)} image tokens, expected 1; {hint}")
    tokens = np.insert(tokens, pad[0], [model.image_token] * (len(features[0]) - 1))
    if len(tokens) >= model.context_length:
        sys.exit(f"error: {len(tokens)} tokens, of them {len(features[0])} of the image, fill the context")
    answer = []
    stream = model.answer(tokens, features, grid, package.stop_tokens(tokenizer), args.max_new_tokens)
    print_answer((answer.append(token) or token for token in stream), tokenizer)
    if args.show_tokens:
        print(answer)


if __name__ == "__main__":
    run_program(main)
