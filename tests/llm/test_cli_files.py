"""`--image`, `--audio`, `/image` and `/audio` of `generate` and `chat`: the engine's answers to the same prompts."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")

import warm_python
from generate_command import in_process, run
from image_models import GridModel, MiniCpm45, png
from llm_packages import DEMO_CHECKPOINT, Package, compile_package
from sound_chats import HearingModel, wav

from tcim_lite.llm.engine import Engine, SamplingParams, answer_all
from tcim_lite.llm.images import ImagePrompts
from tcim_lite.llm.sounds import SoundPrompts

BEGIN, END = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return GridModel("qwen3_vl", tmp_path_factory.mktemp("seen"), "64x96")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for seed in (1, 2):
        (folder / f"{seed}.png").write_bytes(png(50, 70, seed))
    return [folder / "1.png", folder / "2.png"]


def alone(tiny, text: str, files) -> list[int]:
    """The engine's answer to a rendered prompt."""
    images = ImagePrompts.open(tiny.package, tiny.tokenizer)
    shown = [images.take(path.read_bytes()) for path in files]
    tokens = tiny.tokenizer.encode(images.expand(text, shown), add_special_tokens=False).ids
    (event,) = answer_all(Engine.open(tiny.package), [images.place(tokens, shown)], SamplingParams(max_tokens=4))
    return list(event.token_ids)


def test_generate_shows_images_before_the_prompt(tiny, files, capfd):
    asked = ["--chat", "--prompt", "What?", "--max-new-tokens", 4, "--ignore-eos"]
    shown = [word for path in files for word in ("--image", path)]
    found = in_process(capfd, tiny.package.folder, *asked, *shown)
    want = alone(tiny, f"{BEGIN}{tiny.written * 2}What?{END}", files)
    assert found["token_ids"] == want
    other = in_process(capfd, tiny.package.folder, *asked, "--image", files[0], "--image", files[0])
    assert other["stats"]["prompt_tokens"] == found["stats"]["prompt_tokens"]
    assert other["token_ids"] != want


def test_marks_are_text_where_the_template_takes_text(tmp_path, files, capfd):
    tiny = MiniCpm45("minicpmv", tmp_path, "64")
    asked = ["--chat", "--prompt", "What?", "--max-new-tokens", 4, "--ignore-eos", "--image", files[0]]
    found = in_process(capfd, tiny.package.folder, *asked)
    assert found["token_ids"] == alone(tiny, f"{BEGIN}{tiny.written}\nWhat?{END}", files[:1])


def test_a_conversation_keeps_its_images(tiny, files, tmp_path):
    """Those of the first question by an option, those of others by a command."""
    words = ["-m", "tcim_lite", "chat", tiny.package.folder, "--max-new-tokens", "3", "--show-stats"]
    typed = f"One?\n/image {files[1]}\nTwo?\nThree?\n/save {tmp_path / 'said.json'}\n/reset\nFour?\n"
    done = warm_python.run(*map(str, (*words, "--image", files[0])), input=typed, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "(1 image with the next question)" in done.stdout
    saved = json.loads((tmp_path / "said.json").read_text())
    for number in (0, 2):
        assert [part["type"] for part in saved[number]["content"]] == ["image", "text"]
    assert saved[4]["content"] == "Three?"
    counts = [int(line.split()[0].partition("=")[2]) for line in done.stderr.splitlines() if "prompt_tokens=" in line]
    assert len(counts) == 4
    assert counts[1] > counts[0] + 24
    assert counts[2] < counts[1] + 24  # no image more
    assert counts[3] < 24


def test_sounds_are_played_in_the_same_way(tmp_path, capfd):
    tiny = HearingModel("qwen3_asr", tmp_path)
    for seed in (1, 2):
        (tmp_path / f"{seed}.wav").write_bytes(wav(1.3, seed))
    files = [tmp_path / "1.wav", tmp_path / "2.wav"]
    sounds = SoundPrompts.open(tiny.package, tiny.tokenizer)
    heard = [sounds.take(path.read_bytes()) for path in files]
    text = sounds.expand(f"{BEGIN}{''.join(tiny.special) * 2}What?{END}", heard)
    tokens = tiny.tokenizer.encode(text, add_special_tokens=False).ids
    (want,) = answer_all(Engine.open(tiny.package), [sounds.place(tokens, heard)], SamplingParams(max_tokens=4))
    shown = [word for path in files for word in ("--audio", path)]
    asked = ["--chat", "--prompt", "What?", "--max-new-tokens", 4, "--ignore-eos"]
    found = in_process(capfd, tiny.package.folder, *asked, *shown)
    assert found["token_ids"] == list(want.token_ids)
    words = ["-m", "tcim_lite", "chat", tiny.package.folder, "--max-new-tokens", "3", "--show-stats", *shown[:2]]
    done = warm_python.run(*map(str, words), input=f"One?\n/audio {files[1]}\n/image a.png\nTwo?\n", timeout=120)
    assert "(1 sound with the next question)" in done.stdout
    assert "a.png: No such file" in done.stderr
    counts = [int(line.split()[0].partition("=")[2]) for line in done.stderr.splitlines() if "prompt_tokens=" in line]
    assert counts[1] > counts[0] + heard[1].tokens


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--audio", "1.png"], "1.png: qwen3_vl takes no sounds here: qwen3_vl has no encoder of sounds"),
        (["--image", "none.png"], "none.png: No such file or directory"),
        (["--image", "."], "is not a regular file"),
        (["--image", "text.png"], "text.png: 2 bytes, 68 69 and so on, are no image that can be read"),
        (["--image", "1.png", "--prompt", "<|image_pad|>"], "<|image_pad|> 2 times for 1 images"),
        (["--image", "1.png", "--context-length", "9"], "is compiled already"),
    ],
)
def test_what_cannot_be_shown_is_one_line(tiny, files, monkeypatch, capfd, changes, message):
    from tcim_lite.cli import main

    monkeypatch.chdir(files[0].parent)
    (files[0].parent / "text.png").write_text("hi")
    prompt = [] if "--prompt" in changes else ["--prompt", "What?"]
    assert main(["generate", str(tiny.package.folder), "--chat", *prompt, *changes]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_images_need_a_template_and_a_tower(files, tmp_path):
    package: Package = compile_package(DEMO_CHECKPOINT, tmp_path / "demo", quant="w8a8h1_sefp")
    done = run(package.folder, "--prompt", "a", "--image", str(files[0]))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--image and --audio need --chat" in done.stderr
    done = run(package.folder, "--chat", "--prompt", "a", "--image", str(files[0]))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "1.png: qwen3 takes no images here: " in done.stderr
    assert "compile the whole checkpoint with --vision" in done.stderr


def test_a_checkpoint_is_compiled_with_its_tower(tiny, files, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tcim_lite.models.compiler.vision.DEFAULT", "64x96")
    asked = ["--chat", "--prompt", "What?", "--max-new-tokens", 4, "--ignore-eos", "--quant", "float32"]
    sizes = ["--context-length", 256, "--prefill-length", 16]
    found = in_process(capfd, tiny.folder, *asked, *sizes, "--image", files[0])
    assert found["token_ids"] == alone(tiny, f"{BEGIN}{tiny.written}What?{END}", files[:1])


def test_the_tower_is_on_the_first_of_several_devices(files, tmp_path):
    tiny = GridModel("qwen3_vl", tmp_path, "64x96", ndevice=2)
    asked = ["--chat", "--prompt", "What?", "--max-new-tokens", "4", "--ignore-eos", "--json", "--image", str(files[0])]
    found = []
    for devices in ("0", "0,1"):
        done = run(tiny.package.folder, *asked, "--devices", devices, TCIM_LITE_DEVICE_NUM="2")
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout)["token_ids"])
    assert found[0] == found[1] == alone(tiny, f"{BEGIN}{tiny.written}What?{END}", files[:1])
