"""Packages of every family: vLLM knows their config.json, and the tokens are those of one request alone."""

import json
import sys
from pathlib import Path

import pytest
from live_fixtures import GREEDY, Alone
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as TEXT
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as IMAGES
from vllm import LLM

from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.compiler.graph_inputs import cached_layers
from tcim_lite.models.compiler.graph_specs import one_slot_for
from tcim_lite.models.families import FAMILIES, read_config

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from family_checkpoints import family_config

CONFIGS = {family: read_config(record.tiny_config) for family, record in FAMILIES.items()}
CASES = [
    (family, batch)
    for family, config in CONFIGS.items()
    for batch in (1, 2)
    # Models of states alone have no caches, which vLLM goes by.
    if cached_layers(config, range(config.num_layers)) and (batch == 1 or not one_slot_for(config))
]
PROMPTS = [[5, 6, 7], [(7 * number) % 300 for number in range(40)], [9], [8, 5, 8, 5]]  # more than slots


@pytest.mark.filterwarnings("ignore:.*has no tokenizer files")
@pytest.mark.parametrize(("family", "batch"), CASES)
def test_tokens_are_those_of_one_request_alone(family, batch, tmp_path):
    classes = [name for names in (TEXT, IMAGES) if (name := names.get(family))][:1]
    config = family_config(family, max_position_embeddings=64, **({"architectures": classes} if classes else {}))
    (tmp_path / "config.json").write_text(json.dumps(config))
    package, sizes = tmp_path / "package", {"prefill_length": 16, "context_length": 64, "batch": batch}
    compile_checkpoint(CompileOptions(checkpoint=tmp_path, output=package, random_weights=True, **sizes))
    model = Alone(package)
    alone = [list(model.generate(prompt, max_new_tokens=16, stop_tokens=())) for prompt in PROMPTS]
    # A step has room for parts of chunks of several prompts, where an answer must not show how they were cut.
    llm = LLM(model=str(package), seed=0, skip_tokenizer_init=True, max_num_batched_tokens=22)
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], GREEDY, use_tqdm=False)
    assert [list(out.outputs[0].token_ids) for out in outputs] == alone
    llm.llm_engine.engine_core.shutdown()
