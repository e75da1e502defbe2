"""Asks a question about an image, step by step as the vendor's Qwen3-VL example does; Qwen2.5-VL works as well.

tcim-lite compile HF_DIR -o OUT
python examples/export_vision.py HF_DIR vision.onnx --size 448
tcim-lite compile vision.onnx -o OUT --name qwen3_vl_visual
python examples/qwen3_vl.py OUT --image photo.jpg --question "What is this?"
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from network_file import read_image
from PIL import Image

import tcim_lite.runtime as tcim
from tcim_lite.console import run_main
from tcim_lite.llm import Package, cache_names, encode_chat, load_tokenizer, print_answer

ROWS, TIME, HEIGHT, WIDTH, VALID, CURRENT, DEEPSTACK = range(7)  # inputs; behind DEEPSTACK ones come the caches


class VisionLanguageModel:
    """A vision graph, and prefill and decode with one copy of the weights and of the caches."""

    def __init__(self, package: Package):
        weights = tcim.WeightManager(0)
        self.vision = tcim.load(str(package.folder / f"{package.name}_visual.hmm"), option=tcim.Option(weights))
        self.prefill = tcim.load(str(package.prefill_path), option=tcim.Option(weights))
        caches = cache_names(self.prefill)
        option = tcim.Option(weights)
        option.set_dummy_tensors(caches)
        self.decode = tcim.load(str(package.decode_path), option=option)
        for name in caches:
            self.decode.set_input(name, self.prefill.get_dev_input(name))
        self.names = [self.prefill.get_input_name(i) for i in range(self.prefill.get_num_inputs())]
        self.stacks = self.names[DEEPSTACK : self.names.index(caches[0])]
        self.context_length = self.prefill.get_input_info(caches[0]).shape[2]
        self.embedding = package.embedding_for(self.prefill)
        config = json.loads((package.tokenizer_folder / "config.json").read_text(encoding="utf-8"))
        self.image_token = config["image_token_id"]
        vision = config["vision_config"]
        self.cell = vision["patch_size"] * vision.get("spatial_merge_size", 2)  # pixels of a token's side

    def image_size(self) -> tuple[int, int]:
        """Height and width that the vision graph takes."""
        return tuple(self.vision.get_input_info(self.vision.get_input_name(0)).shape[-2:])

    def see(self, pixels: np.ndarray) -> list[np.ndarray]:
        """Features [tokens, H] of an image [1, 3, height, width], then those for each deepstack input."""
        self.vision.set_input(self.vision.get_input_name(0), pixels)
        self.vision.run()
        self.vision.sync()
        outputs = [self.vision.get_output_name(i) for i in range(self.vision.get_num_outputs())]
        return [self.vision.get_output(name).numpy().reshape(-1, self.embedding.shape[1]) for name in outputs]

    def positions(self, tokens: np.ndarray) -> np.ndarray:
        """[3, N]: time, height and width of each token. Text counts on; an image lies at one time."""
        rows, columns = (side // self.cell for side in self.image_size())
        found, following, index = np.zeros((3, len(tokens)), np.int32), 0, 0
        while index < len(tokens):
            if tokens[index] != self.image_token:
                found[:, index], following, index = following, following + 1, index + 1
                continue
            place = slice(index, index + rows * columns)
            found[:, place] = following + np.stack(
                [np.zeros(rows * columns, int), np.repeat(range(rows), columns), np.tile(range(columns), rows)]
            )
            following, index = following + max(rows, columns), index + rows * columns
        return found

    def run(self, module: tcim.Module, rows, positions, stacks, valid: int, current: int) -> np.ndarray:
        """Sets the inputs, padded to what the graph takes, and returns the logits."""
        length = module.get_input_info(self.names[ROWS]).shape[1]

        def padded(values: np.ndarray) -> np.ndarray:
            return np.concatenate([values, np.zeros((length - current, *values.shape[1:]), values.dtype)])

        module.set_input(self.names[ROWS], padded(rows)[None])
        for axis, name in enumerate(self.names[TIME : WIDTH + 1]):
            module.set_input(name, padded(positions[axis]))
        for name, stack in zip(self.stacks, stacks, strict=True):
            module.set_input(name, padded(stack)[None])
        module.set_input(self.names[VALID], np.array([valid], np.int32))
        module.set_input(self.names[CURRENT], np.array([current], np.int32))
        module.run()
        module.sync()
        return module.get_output(module.get_output_name(0)).numpy().reshape(-1)

    def answer(self, tokens: np.ndarray, features: list[np.ndarray], stop_tokens, limit: int | None):
        """Yields tokens after a prompt, greedily, until a stop token, the limit or a full context."""
        images = tokens == self.image_token
        rows = self.embedding[tokens]
        rows[images] = features[0]  # masked_scatter
        stacks = [np.zeros_like(rows) for _ in self.stacks]
        for stack, values in zip(stacks, features[1:], strict=True):
            stack[images] = values
        positions = self.positions(tokens)
        delta = int(positions.max()) + 1 - len(tokens)

        chunk, context = self.prefill.get_input_info(self.names[ROWS]).shape[1], 0
        while context < len(tokens):
            part = slice(context, context + chunk)
            here = [stack[part] for stack in stacks]
            logits = self.run(self.prefill, rows[part], positions[:, part], here, context, len(rows[part]))
            context += len(rows[part])
        nothing, count = [np.zeros((1, rows.shape[1]), rows.dtype) for _ in self.stacks], 0
        while (token := int(logits.argmax())) not in stop_tokens:
            yield token
            count += 1
            if count == limit or context == self.context_length:
                return
            where = np.full((3, 1), context + delta, np.int32)
            logits = self.run(self.decode, self.embedding[token : token + 1], where, nothing, context, 1)
            context += 1


def pixels_of(path: Path, height: int, width: int) -> np.ndarray:
    """[1, 3, height, width] float16 in -1 .. 1: the whole image, the right way up, stretched."""
    image = read_image(path).convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
    return np.ascontiguousarray((np.asarray(image, np.float32) / 127.5 - 1).transpose(2, 0, 1)[None], np.float16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="folder with the language graphs and NAME_visual.hmm")
    parser.add_argument("--image", type=Path, required=True, help="any file that Pillow reads")
    parser.add_argument("--question", default="Describe this image.", help="about the image, by default to describe it")
    parser.add_argument("--name", help="package name, when the folder holds several")
    parser.add_argument("--max-new-tokens", type=int, help="default: until eos or a full context")
    parser.add_argument("--show-tokens", action="store_true", help="print the answer's ids as well")
    args = parser.parse_args()
    if args.max_new_tokens is not None and args.max_new_tokens < 1:
        parser.error(f"--max-new-tokens {args.max_new_tokens}: expected at least 1")
    try:
        package = Package.open(args.package, args.name)
        tokenizer = load_tokenizer(package.tokenizer_folder)
        model = VisionLanguageModel(package)
        features = model.see(pixels_of(args.image, *model.image_size()))
        if len(features) != 1 + len(model.stacks):
            sys.exit(
                f"error: {package.name}_visual.hmm has {len(features)} outputs, expected {1 + len(model.stacks)}; "
                "export the tower of the same checkpoint"
            )
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
        stream = model.answer(tokens, features, package.stop_tokens(tokenizer), args.max_new_tokens)
        print_answer((answer.append(token) or token for token in stream), tokenizer)
        if args.show_tokens:
            print(answer)
    except (OSError, ValueError, RuntimeError, ImportError, Image.DecompressionBombError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    run_main(main)
