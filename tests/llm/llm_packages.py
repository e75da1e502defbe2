"""Packages compiled once per test session, and the pair of modules that runs one."""

import functools
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_forms import EVERY_FORM

import tcim_lite.runtime as tcim
from tcim_lite import layers
from tcim_lite.llm import Generator, Package, cache_names, load_pair
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES, read_config

ROOT = Path(__file__).parent.parent.parent
DEMO_CHECKPOINT = ROOT / "examples" / "demo_checkpoint"

TINY_CONFIG = FAMILIES["qwen3"].tiny_config
QUANTS = ["w4a8h0_ssfp", "w8a8h1_sefp", "mxfp4a8", "float16", "float32"]
# Those without linear attention, whose states are rounded between two runs and are one sequence's.
STATELESS = [name for name, family in FAMILIES.items() if not family.contract.carried]
HYBRIDS = [name for name, family in FAMILIES.items() if family.contract.carried]
# Every profile, and every form of a block: families differ in blocks, not in numbers.
MODELS = [("qwen3", quant) for quant in QUANTS]
MODELS += [(family, "w4a8h0_ssfp") for family in EVERY_FORM if family in STATELESS and family != "qwen3"]
# Those whose layers take inputs of their own: their graphs have one slot, and neither stages nor devices to share them.
LAYER_INPUTS = [name for name, family in FAMILIES.items() if read_config(family.tiny_config).layer_inputs]
# Those whose graphs may have several slots; of the others some take positions along three axes.
WITHOUT_AXES = [name for name in STATELESS if not FAMILIES[name].contract.axes and name not in LAYER_INPUTS]


def compile_package(checkpoint: Path, output: Path, **options) -> Package:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a checkpoint without a tokenizer is what these tests want
        compile_checkpoint(CompileOptions(checkpoint=checkpoint, output=output, **options))
    return Package.open(output)


class LoadedPackage(Generator):
    """A Generator that loads its own modules and shows them; on several devices the `.hmms` files."""

    def __init__(self, package: Package, devices: tuple[int, ...] = (0,)):
        self.manager = tcim.WeightManager(tcim.DevManager(list(devices), "Xh2HalBackend"))
        suffix = ".hmms" if len(devices) > 1 else ".hmm"
        paths = (path.with_suffix(suffix) for path in (package.prefill_path, package.decode_path))
        self.prefill_module, self.decode_module = load_pair(*paths, self.manager)
        super().__init__(self.prefill_module, self.decode_module, package.embedding_for(self.prefill_module))

    def caches(self) -> list[np.ndarray]:
        return [self.prefill_module.get_dev_input(name).numpy() for name in cache_names(self.prefill_module)]


@pytest.fixture(scope="session")
def tiny_package(tmp_path_factory):
    """Compiles the tiny config of a family, with changes, with random weights; equal options give the same package."""
    made = {}

    def make(family: str = "qwen3", config: dict | None = None, **options) -> Package:
        key = json.dumps([family, config, options], sort_keys=True)
        if key not in made:
            folder = tmp_path_factory.mktemp("tiny")
            (folder / "config.json").write_text(json.dumps(FAMILIES[family].tiny_config | (config or {})))
            made[key] = compile_package(folder, folder / "out", random_weights=True, seed=7, **options)
        return made[key]

    return make


@pytest.fixture
def strict_mode():
    """Whatever breaks a rule of the API raises. The variable would be read once in this process, by an earlier test."""
    layers.enable("strict", mode="error")
    yield
    layers.disable("strict")
    layers.take_findings()


@pytest.fixture(scope="session")
def demo_package(tmp_path_factory):
    """Compiles the demo checkpoint with a given `quant`."""

    @functools.cache
    def make(quant: str) -> Package:
        return compile_package(DEMO_CHECKPOINT, tmp_path_factory.mktemp("demo") / quant, quant=quant)

    return make


@pytest.fixture(scope="session")
def demo_prompts() -> list[dict]:
    return json.loads((ROOT / "tests" / "data" / "demo_prompts.json").read_text(encoding="utf-8"))


def encoded_prompts(tokenizer: Any, prompts: list[dict]) -> list[list[int]]:
    """What `encode_chat` gives for each prompt, which starts a process for each (test_package_folder.py compares)."""
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": True}
    return [list(tokenizer.apply_chat_template(entry["messages"], **options)["input_ids"]) for entry in prompts]
