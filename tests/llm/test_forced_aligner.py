"""Qwen3-ForcedAligner: a prefill graph whose head sorts tokens into times, from files of transformers and of Qwen."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
pytest.importorskip("transformers.models.qwen3_asr", reason="the oracle has no Qwen3-ASR")
from oracle import assert_close, logit_bound, random_weights
from sound_models import QWEN_NAMES, rename_tensors
from test_qwen3_asr import AUDIO, SIZES, TEXT, ports

CLASSES = 47


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(9)
    config = transformers.Qwen3ASRConfig(
        audio_config={"model_type": "qwen3_asr_encoder", **AUDIO},
        text_config=TEXT,
        attn_implementation="eager",
        num_labels=CLASSES,
    )
    made = transformers.Qwen3ASRForTokenClassification(config).eval()
    random_weights(made)
    return made


@pytest.fixture(scope="module", params=["transformers", "Qwen"])
def folder(request, model, tmp_path_factory):
    """A checkpoint as transformers writes it, or with the keys and names that Qwen's own has."""
    path = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(path)
    if request.param == "Qwen":
        config = json.loads((path / "config.json").read_text())
        for key in ("id2label", "label2id"):
            del config[key]
        inner = {key: config.pop(key) for key in ("audio_config", "text_config")}
        inner |= {"model_type": "qwen3_forced_aligner", "classify_num": CLASSES}
        config["architectures"] = ["Qwen3ASRForConditionalGeneration"]
        (path / "config.json").write_text(json.dumps({**config, "thinker_config": inner}))
        rename_tensors(path, QWEN_NAMES)
    return path


def compiled(folder, output, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has no tokenizer files")
        compile_checkpoint(CompileOptions(checkpoint=folder, output=output, **{**SIZES, **options}))
    return sorted(path.name for path in output.glob("*.hm*"))


def test_it_is_that_of_transformers(model, folder, tmp_path):
    files = compiled(folder, tmp_path, name="qwen3_forcealigner", quant="float32")
    ends = (".hmw", "_encode.hmm", "_encode.hmw", "_prefill.hmm")
    assert files == [f"qwen3_forcealigner{end}" for end in ends]
    module = rt.load(tmp_path / "qwen3_forcealigner_prefill.hmm")
    assert ports(module)[0] == ("input_embeds", (1, 32, 128), "float32")
    assert ports(module)[-1] == ("logits", (1, 32, CLASSES), "float32")
    tokens = np.random.default_rng(0).integers(0, 331, 29)
    table = np.fromfile(tmp_path / "hmquant/quant_embedding.bin", np.float32).reshape(331, 128)
    rows = np.zeros((1, 32, 128), np.float32)
    rows[0, :29] = table[tokens]
    module.set_input("input_embeds", rows)
    module.set_input("valid_length", np.array([0], np.int32))
    module.set_input("current_length", np.array([29], np.int32))
    module.run(True)
    with torch.no_grad():
        want = model(input_ids=torch.tensor(tokens[None])).logits[0].numpy()
    assert_close(module.get_output("logits").numpy()[0, :29], want, logit_bound(model.config.text_config), "classes")


def test_files_need_not_name_the_type_of_the_model(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    del config["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "a_encode.hmm" in compiled(tmp_path, tmp_path / "out", name="a", random_weights=True)


def test_two_classes_which_files_leave_out(model, tmp_path):
    two = transformers.Qwen3ASRConfig(**{**model.config.to_dict(), "id2label": None, "label2id": None, "num_labels": 2})
    two.architectures = ["Qwen3ASRForTokenClassification"]
    two.save_pretrained(tmp_path)
    assert "id2label" not in json.loads((tmp_path / "config.json").read_text())
    compiled(tmp_path, tmp_path / "out", name="a", random_weights=True)
    assert rt.load(tmp_path / "out/a_prefill.hmm").get_output_info("logits").shape == (1, 32, 2)


def test_it_runs_on_several_devices(folder, tmp_path):
    assert "a_prefill.hmms" in compiled(folder, tmp_path, name="a", ndevice=2)


@pytest.mark.parametrize(
    "options", [{"batch": 2}, {"argmax": True}, {"verify_length": 3}, {"pipeline": 2}, {"draft_layers": 1}]
)
def test_graphs_that_decode_are_refused(folder, tmp_path, options):
    flag = next(iter(options)).replace("_", "-")
    with pytest.raises(CompileError, match=rf"--{flag}.*sorts tokens into {CLASSES} classes"):
        compiled(folder, tmp_path / "out", **options)


def test_a_head_with_a_bias_is_refused(model, tmp_path):
    config = {"architectures": ["Qwen3ASRForTokenClassification"], **model.config.to_diff_dict()}
    (tmp_path / "config.json").write_text(json.dumps(config | {"token_classification_bias": True}))
    with pytest.raises(CompileError, match="token_classification_bias=True is not supported"):
        compiled(tmp_path / "config.json", tmp_path / "out", random_weights=True)
