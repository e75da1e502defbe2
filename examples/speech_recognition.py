"""Writes down what is said in a WAV file, step by step as the vendor's examples of Whisper, Qwen3-ASR and GLM-ASR do.

tcim-lite compile HF_DIR -o OUT
python examples/speech_recognition.py OUT --audio speech.wav
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np
from prompted_speech import HearingModel, Prompt, prompt_for

import tcim_lite.runtime as tcim
from tcim_lite.console import run_program
from tcim_lite.llm import Package, load_tokenizer, print_answer
from tcim_lite.llm.sounds import log_mel, read_wav

# Inputs of prefill and decode; behind CACHES come those of the decoder's layers, all K, all V, then those of the sound.
IDS, POSITIONS, VALID, CURRENT, SELF_MASK, SOUND_MASK, CACHES = range(7)
ENGLISH_VOCABULARY = 51864  # of OpenAI's .en checkpoints; those of several languages have more
SEEN, HIDDEN = 1.0, -65504.0  # in the mask of the caches; both are added to the scores


class SpeechModel:
    """Encoder, prefill and decode with one copy of the weights and of the caches."""

    def __init__(self, package: Package, device: int = 0):
        weights = tcim.WeightManager(device)
        encoder = package.folder / f"{package.name}_encode.hmm"
        self.encoder = tcim.load(str(encoder), option=tcim.Option(weights))
        self.decode = tcim.load(str(package.decode_path), option=tcim.Option(weights))
        self.names = [self.decode.get_input_name(i) for i in range(self.decode.get_num_inputs())]
        option = tcim.Option(weights)
        option.set_dummy_tensors(self.names[CACHES:])
        self.prefill = tcim.load(str(package.prefill_path), option=option)
        shape = self.decode.get_input_info(self.names[CACHES]).shape
        self.heads, self.rows = shape[1], shape[2]
        self._share_caches()
        for module in (self.prefill, self.decode):
            nothing = np.zeros(module.get_input_info(self.names[SOUND_MASK]).shape, np.float16)
            module.set_input(self.names[SOUND_MASK], nothing)

    def _share_caches(self) -> None:
        """Binds what the encoder writes as the decoder's inputs, and each cache as input and output of both graphs."""
        own = (self.decode.get_num_outputs() - 1) // 2
        sound = self.names[CACHES + 2 * own :]
        for kind in range(2):  # the encoder gives K and V of a layer in turn
            for layer, name in enumerate(sound[kind * own : (kind + 1) * own]):
                made = self.encoder.get_dev_output(self.encoder.get_output_name(2 * layer + kind))
                for module in (self.prefill, self.decode):
                    module.set_input(name, made)
        for index, name in enumerate(self.names[CACHES : CACHES + 2 * own]):
            self.decode.set_input(name, np.full(self.decode.get_input_info(name).shape, HIDDEN, np.float16))
            buffer = self.decode.get_dev_input(name)
            self.prefill.set_input(name, buffer)
            for module in (self.prefill, self.decode):
                module.set_output(module.get_output_name(1 + index), buffer)

    def hear(self, features: np.ndarray) -> None:
        """Runs the encoder on features [1, mel, frames]; the decoder's graphs read its results where they lie."""
        self.encoder.set_input(self.encoder.get_input_name(0), features)
        self.encoder.run()
        self.encoder.sync()

    def run(self, module: tcim.Module, tokens: list[int], done: int) -> np.ndarray:
        """Logits of tokens behind `done` others, by row; each sees itself and those before it.

        Fewer tokens than the graph takes are padded.
        """
        count, length = len(tokens), module.get_input_info(self.names[IDS]).shape[1]
        mask = np.full((1, self.heads, length, self.rows), HIDDEN, np.float16)
        for token in range(length):
            mask[:, :, token, : done + token + 1] = SEEN
        module.set_input(self.names[IDS], np.array([tokens + [0] * (length - count)], np.int32))
        module.set_input(self.names[POSITIONS], np.arange(done, done + length, dtype=np.int32)[None])
        module.set_input(self.names[VALID], np.array([done], np.int32))
        module.set_input(self.names[CURRENT], np.array([count], np.int32))
        module.set_input(self.names[SELF_MASK], mask)
        module.run()
        module.sync()
        return module.get_output(module.get_output_name(0)).numpy()[0, :count]

    def transcribe(self, prompt: list[int], end: int, limit: int):
        """Yields tokens greedily until `end` or the limit; prefill takes the whole prompt, which must fit."""
        logits, done = self.run(self.prefill, prompt, 0), len(prompt)
        while (token := int(logits[-1].argmax())) != end and done < limit:
            yield token
            logits, done = self.run(self.decode, [token], done), done + 1


class Words:
    """The tokens of a Whisper tokenizer that are no text."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab()
        self.languages = {
            name[2:-2]: token for name, token in vocabulary.items() if re.fullmatch(r"<\|[a-z]{2,3}\|>", name)
        }
        self.start = self.id("<|startoftranscript|>")
        self.end = self.id("<|endoftext|>")

    def id(self, name: str) -> int:
        token = self.tokenizer.get_vocab().get(name)
        if token is None:
            raise ValueError(f"the tokenizer lacks {name}; compile a folder with the tokenizer of a Whisper checkpoint")
        return token

    def language(self, logits: np.ndarray) -> str:
        """The likeliest."""
        return max(self.languages, key=lambda name: logits[self.languages[name]])

    def prompt(self, language: str, task: str) -> list[int]:
        """Of a model of several languages."""
        return [self.start, *map(self.id, (f"<|{language}|>", f"<|{task}|>", "<|notimestamps|>"))]

    def english_prompt(self) -> list[int]:
        """Of a model of English alone, which has learned no language and no task."""
        return [self.start, self.id("<|notimestamps|>")]


def is_english_only(package: Package, words: Words, vocabulary: int) -> bool:
    """Whether this is a `.en` checkpoint. Its tokenizer may have the tokens of languages all the same."""
    path = package.tokenizer_folder / "generation_config.json"
    told = json.loads(path.read_text("utf-8")).get("is_multilingual") if path.is_file() else None
    return not words.languages or (vocabulary == ENGLISH_VOCABULARY if told is None else not told)


def write_down(package: Package, tokenizer, prompt: Prompt, samples: np.ndarray, limit: int, show_tokens: bool) -> None:
    """What a language model that hears says of each part of a sound that its encoder takes."""
    model, ends = HearingModel(package), package.stop_tokens(tokenizer)
    before, after = (tokenizer.encode(text, add_special_tokens=False) for text in (prompt.before, prompt.after))
    for part in model.parts(samples):
        text = []
        stream = model.transcribe(before, model.hear(part), after, ends, limit)
        print_answer((text.append(token) or token for token in stream), tokenizer)
        if show_tokens:
            print(text)


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number}: expected at least 1")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="folder with the encoder, prefill and decode graphs of a speech model")
    parser.add_argument("--audio", type=Path, required=True, help="WAV file; Whisper gets its first 30 s")
    parser.add_argument(
        "--language", metavar="CODE", help="what is spoken, such as en (Whisper; default: the likeliest)"
    )
    parser.add_argument(
        "--task", choices=("transcribe", "translate"), default="transcribe", help="translate: to English (Whisper)"
    )
    parser.add_argument("--name", help="package name, when the folder holds several")
    parser.add_argument("--max-tokens", type=positive, default=448, help="of an answer; of Whisper with its prompt")
    parser.add_argument("--show-tokens", action="store_true", help="print the text's ids as well")
    args = parser.parse_args()
    samples = read_wav(args.audio)
    package = Package.open(args.package, args.name)
    tokenizer = load_tokenizer(package.tokenizer_folder)
    if (prompt := prompt_for(tokenizer.get_vocab())) is not None:
        if args.language is not None or args.task != "transcribe":
            raise ValueError("this model hears the language by itself; leave out --language and --task")
        write_down(package, tokenizer, prompt, samples, args.max_tokens, args.show_tokens)
        return
    words = Words(tokenizer)
    model = SpeechModel(package)
    _, bins, frames = model.encoder.get_input_info(model.encoder.get_input_name(0)).shape
    model.hear(log_mel(samples, bins, frames))
    vocabulary = model.decode.get_output_info(model.decode.get_output_name(0)).shape[-1]
    if is_english_only(package, words, vocabulary):
        if args.language not in (None, "en") or args.task != "transcribe":
            raise ValueError("this model knows English alone; leave out --language and --task")
        language, prompt = "en", words.english_prompt()
    else:
        language = args.language or words.language(model.run(model.decode, [words.start], 0)[0])
        prompt = words.prompt(language, args.task)
    print(f"language: {language}")
    text = []
    stream = model.transcribe(prompt, words.end, min(args.max_tokens, model.rows))
    print_answer((text.append(token) or token for token in stream), words.tokenizer)
    if args.show_tokens:
        print(text)


if __name__ == "__main__":
    run_program(main)
