"""The vision-language example on tiny random models: its answers are those of transformers."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from imported import imported
from llm_packages import DEMO_CHECKPOINT, ROOT, compile_package

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers", reason="the oracle")
tokenizers = pytest.importorskip("tokenizers", reason="needs the extra [chat]")
Image = pytest.importorskip("PIL.Image", reason="needs the extra [images]")

from vision_language import TOWERS, patches_for, random_model

from tcim_lite.cli import main
from tcim_lite.llm import encode_chat, load_tokenizer
from tcim_lite.llm.vision import VisionTower

SPECIAL = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]
QUESTION, LIMIT = "What is this?", 6
pixels_of = imported(ROOT / "examples/qwen3_vl.py").pixels_of


@pytest.fixture(scope="module", params=TOWERS)
def made(request, tmp_path_factory):
    """A model of transformers, and a package of its language and vision graphs in float32."""
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint, out = folder / "hf", folder / "out"
    tokenizer = tokenizers.Tokenizer.from_file(str(DEMO_CHECKPOINT / "tokenizer.json"))
    tokenizer.add_special_tokens(SPECIAL)
    model = random_model(request.param, vocab_size=tokenizer.get_vocab_size())
    model.config.image_token_id = tokenizer.token_to_id(SPECIAL[1])
    model.save_pretrained(checkpoint)
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    for file in ("tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(DEMO_CHECKPOINT / file, checkpoint / file)
    sizes = {"prefill_length": 16, "context_length": 128}
    asked = "24" if request.param == "qwen3_5" else "64x96"
    package = compile_package(checkpoint, out, quant="float32", vision=asked, **sizes)
    return model, package, checkpoint


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "photo.png"
    Image.fromarray(np.random.default_rng(2).integers(0, 256, (50, 70, 3), np.uint8)).save(path)
    return path


def greedy(model, tokens: np.ndarray, pixels: np.ndarray) -> list[int]:
    """What transformers answers, without a cache; patches are cut as its processor cuts them."""
    patches, grid = patches_for(model, pixels)
    found = []
    for _ in range(LIMIT):
        ids = torch.tensor(np.array([[*tokens, *found]]))
        kinds = (ids == model.config.image_token_id).int()
        with torch.no_grad():
            model.model.rope_deltas = None
            given = {"pixel_values": patches, "image_grid_thw": torch.tensor([grid]), "mm_token_type_ids": kinds}
            found.append(int(model(ids, **given).logits[0, -1].argmax()))
    return found


def test_answers_are_those_of_transformers(made, photo, run_example, shown_tokens):
    model, package, _ = made
    tokenizer = load_tokenizer(package.tokenizer_folder)
    text = "".join(SPECIAL) + QUESTION
    tokens = np.array(encode_chat(tokenizer, [{"role": "user", "content": text}]))
    pad = int(np.flatnonzero(tokens == model.config.image_token_id)[0])
    tower = VisionTower(package.folder, package.name)
    pixels = pixels_of(photo, tower, package.tokenizer_folder / "preprocessor_config.json")
    count = pixels.shape[1] * pixels.shape[2] // tower.cell**2
    tokens = np.insert(tokens, pad, [model.config.image_token_id] * (count - 1))
    expected = greedy(model, tokens, pixels)
    asked = ("--image", photo, "--question", QUESTION, "--max-new-tokens", LIMIT, "--show-tokens")
    done = run_example("qwen3_vl.py", package.folder, *asked)
    assert done.returncode == 0, done.stderr
    (answer,) = shown_tokens(done.stdout)
    assert answer == expected[: len(answer)]
    assert len(answer) == LIMIT or expected[len(answer)] in package.stop_tokens(tokenizer)


def test_a_photograph_is_seen_the_right_way_up(made, tmp_path, photo):
    stored, exif = Image.open(photo).transpose(Image.Transpose.ROTATE_90), Image.Exif()
    exif[0x0112] = 6  # turned to the left
    stored.save(tmp_path / "turned.png", exif=exif)
    tower = VisionTower(made[1].folder, made[1].name)
    seen = [pixels_of(path, tower, tmp_path / "none.json") for path in (tmp_path / "turned.png", photo)]
    np.testing.assert_array_equal(*seen)
    assert np.abs(seen[0]).max() <= 1


def test_colours_are_those_of_the_processor(made, tmp_path, photo):
    tower = VisionTower(made[1].folder, made[1].name)
    plain = pixels_of(photo, tower, tmp_path / "none.json").astype(np.float32)
    (tmp_path / "its.json").write_text('{"image_mean": [0.5, 0.25, 0.5], "image_std": [0.5, 0.5, 0.25]}')
    found = pixels_of(photo, tower, tmp_path / "its.json").astype(np.float32)
    np.testing.assert_allclose(found, [plain[0], plain[1] + 0.5, 2 * plain[2]], atol=2e-3)


@pytest.mark.parametrize("made", ["qwen3_vl"], indirect=True, scope="module")
@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"--image": "none.png"}, 1, "No such file"),
        ({"--image": "huge.png"}, 1, "exceeds limit"),
        ({"--question": "<|image_pad|>"}, 1, "2 image tokens, expected 1; leave <|image_pad|> out"),
        ({"--max-new-tokens": "0"}, 2, "expected at least 1"),
    ],
)
def test_what_cannot_be_answered_is_one_line(made, photo, run_example, changes, status, message):
    Image.new("1", (20000, 10000)).save(photo.with_name("huge.png"))
    asked = {"--image": photo.name, "--max-new-tokens": "1", **changes}
    asked["--image"] = photo.with_name(asked["--image"])
    done = run_example("qwen3_vl.py", made[1].folder, *(word for pair in asked.items() for word in pair))
    assert done.returncode == status
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("made", ["qwen3_vl"], indirect=True, scope="module")
def test_a_package_without_a_tower_says_how_to_get_one(made, photo, tmp_path, run_example):
    shutil.copytree(made[1].folder, tmp_path / "package")
    for path in (tmp_path / "package").glob("*visual*"):
        path.unlink()
    done = run_example("qwen3_vl.py", tmp_path / "package", "--image", photo)
    assert done.returncode == 1
    assert "compile the whole checkpoint with --vision" in done.stderr.splitlines()[-1]


def test_text_alone_works_in_chat_and_generate(made, capsys):
    _, package, _ = made
    assert main(["generate", str(package.folder), "--prompt", "Hello", "--max-new-tokens", "4"]) == 0
    assert json.dumps(capsys.readouterr().out)
