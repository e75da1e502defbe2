"""Gemma 4 with its assistant, as the vendor's program runs them: guesses against transformers, tokens as without."""

import json
import shutil

import numpy as np
import pytest
from gemma_program import SHARED, WIDTH, WINDOW, C, P, Program, T, names
from generate_command import in_process
from llm_packages import DEMO_CHECKPOINT, compile_package
from oracle import assert_close, random_weights
from test_gemma import EXPERTS, GEMMA4, KEYS_ARE_VALUES, bound_of, random_gemma4

from tcim_lite.llm.engine import Slots
from tcim_lite.llm.engine.assistant import Assistant
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
transformers = pytest.importorskip("transformers", reason="the oracle needs transformers")
pytestmark = pytest.mark.oracle

if not hasattr(transformers, "Gemma4AssistantConfig"):
    pytest.skip("this transformers has no assistants", allow_module_level=True)
# Layers with other heads than the model's, but with KV heads as the model has.
TEXT = {
    **GEMMA4,
    **KEYS_ARE_VALUES,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_attention_heads": 2,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    "num_kv_shared_layers": 4,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
}


def sharing_modes(config):
    """As released models need it. transformers 5.23 refuses assistants, and keeps nothing of models without sharing."""
    layers, types = config.num_hidden_layers, config.layer_types
    if config.num_kv_shared_layers == layers:
        return ["reuse"] * layers
    last = {max(i for i in range(layers) if types[i] == kind) for kind in set(types)}
    return ["store" if i in last else None for i in range(layers)]


# Of 320 tokens in 20 clusters, those of three have logits of their own.
CLUSTERS = {"use_ordered_embeddings": True, "num_centroids": 20, "centroid_intermediate_top_k": 3}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    yield from made_models(tmp_path_factory.mktemp("assistant"), {})


@pytest.fixture(scope="module")
def with_clusters(tmp_path_factory):
    yield from made_models(tmp_path_factory.mktemp("clusters"), {"vocab_size": 320}, **CLUSTERS)


def made_models(folder, sizes, **changes):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(transformers.Gemma4TextConfig, "kv_sharing_modes", property(sharing_modes))
        model = random_gemma4({**KEYS_ARE_VALUES, **EXPERTS, **sizes})
        torch.manual_seed(7)
        text = transformers.Gemma4TextConfig(**{**TEXT, **sizes})
        config = transformers.Gemma4AssistantConfig(text_config=text, backbone_hidden_size=WIDTH, **changes)
        assistant = transformers.Gemma4AssistantForCausalLM._from_config(config, attn_implementation="eager")
        assistant = assistant.float().eval()
        random_weights(assistant)
        assistant.tie_weights()
        with torch.no_grad():
            for name, tensor in assistant.named_buffers():
                if name.endswith("layer_scalar"):
                    tensor.copy_(torch.rand(1) + 0.3)
                elif name.endswith("token_ordering"):
                    tensor.copy_(torch.randperm(len(tensor)))
        model.save_pretrained(folder / "hf")
        assistant.save_pretrained(folder / "assistant")
        yield folder, model, assistant


@pytest.fixture(scope="module")
def program(models):
    return program_of(models[0])


@pytest.fixture(scope="module")
def program_with_clusters(with_clusters):
    return program_of(with_clusters[0])


def program_of(folder):
    sizes = {"prefill_length": P, "context_length": C}
    return Program(compile_package(folder / "hf", folder / "out", quant="float32", draft=folder / "assistant", **sizes))


def tokens_of(count):
    return np.random.default_rng(count).integers(0, 331, count).tolist()


def test_names_and_shapes(program):
    assert names(program.prefill)[:4] == ["input_1", "valid_length", "current_length", "sliding_attention_mask"]
    assert program.decode.get_input_info("input_1").shape == (1, T, WIDTH)
    assert [program.decode.get_output_name(i) for i in range(2)] == ["logits", "last_hidden_state"]
    assistant = program.assistant
    shapes = {name: assistant.get_input_info(name).shape for name in names(assistant)}
    assert (
        shapes
        == {
            "inputs_embeds": (1, 1, 2 * WIDTH),
            "past_seq_length": (1,),
            "current_input_length": (1,),
            "local_attention_mask": (1, 1, 1, 33),  # of the rows that decode's mask has, and of the token itself
            "global_attention_mask": (1, 1, 1, C),
            **{name: (1, 2, C, 64) for name in SHARED[:2]},
            **{name: (1, 1, C, 96) for name in SHARED[2:]},
        }
    )
    assert [assistant.get_output_name(i) for i in range(2)] == ["logits", "assistant_hidden_state"]
    assert assistant.get_output_info("assistant_hidden_state").shape == (1, 1, WIDTH)


@pytest.mark.parametrize("past", [3, 20, 60])
def test_guesses_follow_those_of_transformers(models, program, past):
    """Also behind the window. The rows of the caches are the model's, as far as they are tokens."""
    _, model, assistant = models
    *prompt, token = tokens_of(past + 1)
    with torch.no_grad():
        out = model(torch.tensor([prompt]), output_hidden_states=True, return_shared_kv_states=True)
    bound = 4 * bound_of(model)  # the model's hidden states, then four layers and two Linears
    _, hidden = program.read(prompt)
    want = out.hidden_states[-1][:, -1:]
    assert_close(hidden[0], want[0].numpy(), bound, "hidden state of the prompt")
    shared = {kind: tuple(part[:, :, :past] for part in pair) for kind, pair in out.shared_kv_states.items()}
    shared["sliding_attention"] = tuple(part[:, :, -WINDOW:] for part in shared["sliding_attention"])
    for step in range(1 if past > 32 else T - 1):
        embedded = model.get_input_embeddings()(torch.tensor([[token]]))
        with torch.no_grad():
            guessed = assistant(
                inputs_embeds=torch.cat([embedded, want], -1),
                position_ids=torch.tensor([[past + step]]),
                shared_kv_states=shared,
                use_cache=False,
            )
        logits, hidden = program.guess(token, hidden, past, step)
        assert_close(logits[0], guessed.logits[0].numpy(), bound, f"logits of guess {step}")
        want = guessed.last_hidden_state
        assert_close(hidden[0], want[0].numpy(), bound, f"hidden state of guess {step}")
        token = int(guessed.logits.argmax())


@pytest.mark.parametrize("past", [3, 60])
@pytest.mark.parametrize("fixtures", [("models", "program"), ("with_clusters", "program_with_clusters")])
def test_the_engine_guesses_as_transformers(request, past, fixtures):
    """All guesses of a round stand at one position."""
    (_, model, assistant), program = map(request.getfixturevalue, fixtures)
    slots = Slots.open(program.package)
    guide = Assistant.open(program.package, slots)
    guide.margin = 0
    text = [token % 320 for token in tokens_of(past + 1)]
    for begin in range(0, past, P):
        slots.prefill(0, text[:past][begin : begin + P])
    with torch.no_grad():
        out = model(torch.tensor([text[:past]]), output_hidden_states=True, return_shared_kv_states=True)
        hidden, shared = out.hidden_states[-1][:, -1:], out.shared_kv_states
        shared["sliding_attention"] = tuple(part[:, :, -WINDOW:] for part in shared["sliding_attention"])
        wanted = []
        for _ in range(T - 1):
            embedded = model.get_input_embeddings()(torch.tensor([[[*text, *wanted][-1]]]))
            row, place = torch.cat([embedded, hidden], -1), torch.tensor([[past]])
            guessed = assistant(inputs_embeds=row, position_ids=place, shared_kv_states=shared, use_cache=False)
            hidden = guessed.last_hidden_state
            wanted.append(int(guessed.logits.argmax()))
    assert guide.propose(text, T - 1) == wanted


def test_only_tokens_of_some_clusters_have_logits_of_their_own(with_clusters, program_with_clusters):
    (_, model, assistant), program = with_clusters, program_with_clusters
    *prompt, token = (token % 320 for token in tokens_of(20))
    _, hidden = program.read(prompt)
    with torch.no_grad():
        out = model(torch.tensor([prompt]), output_hidden_states=True, return_shared_kv_states=True)
        embedded = model.get_input_embeddings()(torch.tensor([[token]]))
        guessed = assistant(
            inputs_embeds=torch.cat([embedded, out.hidden_states[-1][:, -1:]], -1),
            position_ids=torch.tensor([[len(prompt)]]),
            shared_kv_states=out.shared_kv_states,
            use_cache=False,
        )
    logits, _ = program.guess(token, hidden, len(prompt), 0)
    want = guessed.logits[0].numpy()
    assert (want == want.min()).sum() == 320 - 3 * 16
    assert_close(logits[0], want, 4 * bound_of(model), "logits of a guess")


def test_answers_are_those_of_the_model_alone(models, program):
    """Guesses of the assistant, and in every other round right ones, of which all are accepted."""
    prompt, answer = tokens_of(40), []
    with torch.no_grad():
        wanted = models[1].generate(torch.tensor([prompt]), max_new_tokens=40, do_sample=False, eos_token_id=None)
    wanted = wanted[0, len(prompt) :].tolist()
    logits, hidden = program.read(prompt)
    answer.append(int(logits.argmax()))
    rounds = 0
    while len(answer) < len(wanted):
        past, guesses = len(prompt) + len(answer) - 1, []
        for step in range(T - 1):
            logits, hidden = program.guess([*answer[-1:], *guesses][-1], hidden, past, step)
            guesses.append(int(logits.argmax()))
        if rounds % 2:
            guesses = wanted[len(answer) : len(answer) + T - 1]
        logits, hidden = program.verify(program.decode, [answer[-1], *guesses], past)
        chosen = logits[0].argmax(-1).tolist()
        accepted = next((i for i, guess in enumerate(guesses) if guess != chosen[i]), len(guesses))
        assert accepted == len(guesses) or not rounds % 2
        answer += [*guesses[:accepted], chosen[accepted]]
        hidden = hidden[:, accepted : accepted + 1]
        rounds += 1
    assert answer[: len(wanted)] == wanted


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"batch": 2}, "--batch: graphs of a model with the assistant of Gemma 4 are for one sequence"),
        ({}, {"all_logits": True}, "--all-logits: graphs of a model with the assistant"),
        ({}, {"draft_quant": "float16"}, "--draft-quant float16: .*caches, which are float32, not float16"),
        (CLUSTERS, {}, "num_centroids=20, expected a divisor of vocab_size=331"),
        ({"backbone_hidden_size": 256}, {}, "backbone_hidden_size 256, expected the 192"),
        (
            {"text_config": {**TEXT, "head_dim": 32}},
            {},
            r"KV heads and head_dim of layer 0 \(2, 32\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(models, tmp_path, changes, options, message):
    config = json.loads((models[0] / "assistant/config.json").read_text())
    (tmp_path / "as").mkdir()
    (tmp_path / "as/config.json").write_text(json.dumps({**config, **changes}))
    sizes = {"prefill_length": P, "context_length": C, "quant": "float32", "random_weights": True}
    with pytest.raises(CompileError, match=message):
        compile_package(models[0] / "hf", tmp_path / "out", draft=tmp_path / "as", **{**sizes, **options})


def test_an_assistant_is_for_gemma4_alone(models, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["qwen3"].tiny_config))
    with pytest.raises(CompileError, match=r"is the assistant of Gemma 4, and .* is Qwen3 dense"):
        compile_package(tmp_path, tmp_path / "out", random_weights=True, draft=models[0] / "assistant")


def test_generate_takes_a_checkpoint_and_the_assistant_that_guesses_for_it(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, _, _ = next(made_models(tmp_path, {"vocab_size": 1536}))  # of the demo's tokenizer
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO_CHECKPOINT / name, folder / "hf")
    ask = [folder / "hf", "--context-length", 64, "--prefill-length", 16, "--max-new-tokens", 12, "--prompt", "a b"]
    made = in_process(capfd, *ask, "--draft", folder / "assistant")
    assert made["stats"]["drafted_tokens"] > 0
    assert made["token_ids"] == in_process(capfd, *ask)["token_ids"]
