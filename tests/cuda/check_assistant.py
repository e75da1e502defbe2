"""The engine with assistants of Gemma 4 on the GPU: the answers, and the guesses, are those of the CPU.

    python tests/cuda/check_assistant.py FOLDER

Weights are random, in float32: differences of the devices are smaller than those between the best logits. Such weights
guess wrong, so a drafter that knows the answers also guesses, and every few tokens it errs.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # python -P leaves it out
import check_packages
from package_cases import CASES

from tcim_lite.llm import Package
from tcim_lite.llm.engine import Engine, SamplingParams, Slots
from tcim_lite.llm.engine.assistant import Assistant

ANSWER = 24
PROMPTS = [np.random.default_rng(seed).integers(0, 320, length).tolist() for seed, length in enumerate((41, 3, 64))]


class Told:
    """Guesses the answers, but for every seventh token."""

    def __init__(self, answers: list[list[int]]) -> None:
        self.texts = [prompt + answer for prompt, answer in zip(PROMPTS, answers, strict=True)]

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        whole = next(whole for whole in self.texts if whole[: len(text)] == list(text))
        places = range(len(text), min(len(text) + count, len(whole)))
        return [abs(whole[place] - (place % 7 == 0)) for place in places]


def slots_on(kind: str, device: int, package: Package) -> Slots:
    os.environ["TCIM_LITE_DEVICE"] = kind
    return Slots.open(package, devices=[device])


def guided(slots: Slots, package: Package) -> Engine:
    assistant = Assistant.open(package, slots)
    assistant.margin = 0  # as many guesses as there may be
    return Engine(slots, drafter=assistant)


def answers_of(engine: Engine) -> list[list[int]]:
    answers: list[list[int]] = [[] for _ in PROMPTS]
    for index, prompt in enumerate(PROMPTS):
        engine.add(prompt, SamplingParams(max_tokens=ANSWER), request_id=str(index))
    while engine.has_work:
        for event in engine.step():
            assert event.error is None, event.error
            answers[int(event.request_id)].extend(event.token_ids)
    return answers


def check(name: str, folder: Path) -> bool:
    check_packages.compiled(next(case for case in CASES if case.name == name), folder, "float32")
    package = Package.open(folder)
    answers = answers_of(Engine(slots_on("cpu", 1, package)))
    good, counts = True, []
    for what, kind, device in (("CPU", "cpu", 1), ("GPU", "cuda", 0)):
        engine = guided(slots_on(kind, device, package), package)
        good &= answers_of(engine) == answers
        counts.append((engine.stats.drafted_tokens, engine.stats.accepted_tokens))
        told = Engine(slots_on(kind, device, package), drafter=Told(answers))
        good &= answers_of(told) == answers and 0 < told.stats.accepted_tokens < told.stats.drafted_tokens
        print(f"{name} on the {what}: {counts[-1]} tokens guessed and right; right answers: {good}", flush=True)
    return good and counts[0] == counts[1] and counts[0][0] > 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    good = [check(name, folder / f"engine-{name}") for name in ("gemma4_assisted", "gemma4_ranked")]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
