"""The examples of networks from ONNX files, on the two demo networks and their test images."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from cpp_programs import ROOT
from warm_python import ISOLATED

pytest.importorskip("onnx", reason="needs onnx")
Image = pytest.importorskip("PIL.Image", reason="needs Pillow")
from PIL import ImageOps

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.models.onnx.compile import OnnxOptions, compile_onnx

pytestmark = pytest.mark.slow  # whole programs
NETWORKS = ROOT / "examples" / "demo_networks"
CLASSES = (NETWORKS / "classes.txt").read_text().split()
PROFILES = ("float32", "float16", "w8a8h1_sefp")


@pytest.fixture(scope="module")
def detection():
    """The example as a module."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import object_detection
    finally:
        sys.path.pop(0)
    return object_detection


@pytest.fixture(scope="module")
def training():
    """evaluate.py of the demo networks as a module."""
    sys.path.insert(0, str(NETWORKS / "training"))
    try:
        import evaluate
    finally:
        sys.path.pop(0)
    return evaluate


def shares(printed: str) -> dict[str, list[tuple[float, str]]]:
    """{image: [(per cent, class), ..]} of what image_classification.py printed."""
    found: dict[str, list[tuple[float, str]]] = {}
    image = ""
    for line in printed.splitlines():
        if match := re.fullmatch(r" +([\d.]+)%  (\w+)", line):
            found[image].append((float(match.group(1)), match.group(2)))
        else:
            image = line.removesuffix(":")
            found[image] = []
    return found


def boxes(printed: str) -> dict[str, list[tuple[str, list[float]]]]:
    """{image: [(class, corners), ..]} of what object_detection.py printed."""
    found: dict[str, list[tuple[str, list[float]]]] = {}
    for line in printed.splitlines():
        if not line.startswith(" "):
            image = line.split(":")[0]
            found[image] = []
        else:
            _, name, *corners = line.split()
            found[image].append((name, [float(corner) for corner in corners]))
    return found


@pytest.mark.parametrize("quant", PROFILES)
def test_the_classifier_names_the_shapes_of_its_test_images(run_example, quant):
    images = [NETWORKS / "images" / f"{name}.png" for name in CLASSES]
    done = run_example("image_classification.py", NETWORKS / "shapes_classifier.onnx", *images, "--quant", quant)
    assert done.returncode == 0, done.stderr
    found = shares(done.stdout)
    assert [Path(image).stem for image in found] == CLASSES
    right = [ranked[0][1] == name for name, ranked in zip(CLASSES, found.values(), strict=True)]
    assert sum(right) >= 8  # of ten; the README says how often it is right
    for ranked in found.values():
        assert len(ranked) == 5
        assert ranked == sorted(ranked, reverse=True)


@pytest.mark.parametrize("quant", PROFILES)
def test_the_detector_finds_and_frames_what_is_in_its_scenes(run_example, detection, tmp_path, quant):
    truth = json.loads((NETWORKS / "images" / "scenes.json").read_text())
    images = [NETWORKS / "images" / name for name in truth]
    model = NETWORKS / "shapes_detector.onnx"
    done = run_example("object_detection.py", model, *images, "--quant", quant, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    found = boxes(done.stdout)
    hits = []
    for name, wanted in truth.items():
        for label, *corners in wanted:
            same = np.array([box for other, box in found[name] if other == label]).reshape(-1, 4)
            hits.append(len(same) > 0 and detection.overlaps(np.array(corners), same).max() > 0.5)
        before = np.asarray(Image.open(NETWORKS / "images" / name))
        after = np.asarray(Image.open(tmp_path / "out" / f"{Path(name).stem}_boxes.png"))
        assert after.shape == before.shape
        changed = (before != after).any(axis=2)
        for _, (x1, _, x2, y2) in found[name]:  # the lower side of a frame
            assert changed[min(round(y2) - 1, before.shape[0] - 1), int(x1 + x2) // 2]
        assert 0 < changed.mean() < 0.5
    assert len(hits) > 6
    assert sum(hits) >= len(hits) - 1


def test_a_compiled_package_gives_what_its_onnx_file_gives(run_example, tmp_path):
    model, image = NETWORKS / "shapes_classifier.onnx", NETWORKS / "images" / "star.png"
    command = [sys.executable, ISOLATED, "-m", "tcim_lite", "compile", model, "-o", tmp_path / "package", "-q"]
    subprocess.run(command, check=True)
    labels = ("--labels", NETWORKS / "classes.txt", "--save-input", tmp_path / "input.bin")
    done = run_example("image_classification.py", tmp_path / "package", image, *labels)
    assert done.stdout == run_example("image_classification.py", model, image).stdout
    assert (tmp_path / "input.bin").stat().st_size == 3 * 64 * 64 * 2


def test_the_examples_say_what_does_not_fit(run_example, tmp_path):
    image = NETWORKS / "images" / "star.png"
    for example, arguments, text in (
        ("image_classification.py", (tmp_path, image), "holds 0 .hmm files, expected one"),
        ("image_classification.py", (tmp_path / "a.hmm", image, "--quant", "float16"), "is for ONNX files"),
        ("object_detection.py", (NETWORKS / "shapes_classifier.onnx", image), "expected [1, 4 + classes, candidates]"),
        ("image_classification.py", (NETWORKS / "shapes_classifier.onnx", tmp_path / "none.png"), "none.png"),
    ):
        done = run_example(example, *arguments)
        assert done.returncode == 1
        assert done.stderr.startswith("error: ")
        assert text in done.stderr


def test_the_examples_say_which_file_is_no_image_that_they_open(run_example, tmp_path):
    header = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)), (b"IDAT", b""))
    )
    for name, content in (("bomb.png", header), ("empty.png", b""), ("text.jpg", b"no image")):
        (tmp_path / name).write_bytes(content)
    for example, kind in (("image_classification.py", "classifier"), ("object_detection.py", "detector")):
        assert main(["compile", str(NETWORKS / f"shapes_{kind}.onnx"), "-o", str(tmp_path / kind), "-q"]) == 0
        for name in ("bomb.png", "empty.png", "text.jpg"):
            done = run_example(example, tmp_path / kind, tmp_path / name)
            assert done.returncode == 1
            assert done.stderr.splitlines()[-1].startswith("error: ")
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize("orientation", range(10))
def test_photographs_are_turned_as_their_exif_says(detection, tmp_path, orientation):
    stored = Image.fromarray(np.random.default_rng(1).integers(0, 256, (5, 9, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in ("photo.png", "photo.jpg", "photo.tiff"):
        stored.save(tmp_path / name, exif=exif)
        expected = ImageOps.exif_transpose(Image.open(tmp_path / name))
        found = detection.read_image(tmp_path / name)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_an_image_with_damaged_exif_is_shown_as_it_is_stored(detection, tmp_path):
    stored = Image.new("RGB", (9, 5))
    for content in (b"MM\xff*\0\0\0\x08", b"II*\0", b"garbage"):
        stored.save(tmp_path / "photo.png", exif=content)
        assert np.asarray(detection.read_image(tmp_path / "photo.png")).shape == (5, 9, 3)


def test_grey_values_of_16_bits_keep_their_range(detection, tmp_path):
    values = np.random.default_rng(1).integers(0, 1 << 16, (5, 9), np.uint16)
    for name in ("photo.png", "photo.tiff"):
        Image.fromarray(values).save(tmp_path / name)
        np.testing.assert_array_equal(
            np.asarray(detection.read_image(tmp_path / name).convert("RGB"))[..., 0], values >> 8
        )


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_grey_values_of_no_known_range_are_refused(detection, tmp_path, dtype):
    Image.fromarray(np.zeros((5, 9), dtype)).save(tmp_path / "photo.tiff")
    with pytest.raises(ValueError, match="grey values of 32 bits"):
        detection.read_image(tmp_path / "photo.tiff")


def test_non_maximum_suppression_keeps_the_best_of_each_class(detection):
    square = np.array([0, 0, 10, 10], np.float32)
    frames = np.stack([square, square + 1, square - np.float32([0, 0, 0, 5]), square + 1, square + 30])
    scores = np.array([0.5, 0.9, 0.4, 0.3, 0.2], np.float32)
    labels = np.array([0, 0, 0, 1, 0])
    overlap = 81 / 119
    np.testing.assert_allclose(detection.overlaps(frames[0], frames), [1, overlap, 0.5, overlap, 0], rtol=1e-6)
    assert detection.non_maximum_suppression(frames, scores, labels, 0.45) == [1, 2, 3, 4]  # [2] overlaps [1] by 0.346
    assert detection.non_maximum_suppression(frames, scores, labels, 0.7) == [1, 0, 2, 3, 4]
    assert detection.non_maximum_suppression(frames, scores, labels, 0.3) == [1, 3, 4]
    assert detection.non_maximum_suppression(frames[:0], scores[:0], labels[:0], 0.5) == []


def test_boxes_come_back_from_the_letterbox(detection):
    image = Image.new("RGB", (200, 100), "white")
    prepared, place = detection.prepare(image, 160, 160)
    assert prepared.shape == (1, 3, 160, 160)
    assert (prepared[0, :, :40] == np.float16(114 / 255)).all()
    assert (prepared[0, :, 40:120] == 1).all()
    found = place.to_image(np.float32([[0, 40, 160, 120], [40, 60, 80, 500]]), 200, 100)
    np.testing.assert_allclose(found, [[0, 0, 200, 100], [50, 25, 100, 100]])


def test_average_precision_counts_misses_and_doubles(training):
    truth = [np.array([[0.0, 0, 10, 10], [20, 20, 30, 30]]), np.zeros((0, 4))]
    found = [np.array([[0.0, 0, 10, 9], [0, 0, 10, 10], [20, 20, 30, 30]]), np.array([[0.0, 0, 1, 1]])]
    overlaps = [training.all_overlaps(boxes, true) for boxes, true in zip(found, truth, strict=True)]
    hits = training.matched(overlaps, [np.array([0.9, 0.8, 0.3]), np.array([0.5])], 0.5)
    assert hits.tolist() == [True, False, False, True]  # by score: found, a second time, nothing there, found
    assert training.average_precision(hits, 2) == pytest.approx((1 + 2 / 4) / 2)
    assert training.average_precision(hits[:1], 2) == 0.5
    assert training.average_precision(hits[:0], 2) == 0


def test_the_accuracy_of_the_tables_holds_on_some_pictures(training, tmp_path, monkeypatch):
    """Every profile within three standard deviations of the README's value, on the first pictures of its test set."""

    def compiled(model, quant):
        """In this process, not in one of its own as by the examples."""
        output = tmp_path / f"{model.stem}_{quant}"
        return rt.load(compile_onnx(OnnxOptions(model=model, output=output, quant=quant, batch=1)).path)

    monkeypatch.setattr(training, "open_network", compiled)
    # Not looked at below: what onnxruntime finds, and precision at every overlap that COCO asks for.
    monkeypatch.setattr(training, "by_onnxruntime", lambda path: None)
    monkeypatch.setattr(training, "IOU_LIMITS", [0.5])
    published = {}
    for line in (NETWORKS / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in ("top 1", "recall at 0.25"):
            published[cells[0]] = [float(cell) / 100 for cell in cells[2:]]
    for kind, row, pictures, trials in (("classifier", "top 1", 300, 300), ("detector", "recall at 0.25", 40, 160)):
        measured = training.evaluate(kind, count=pictures)[row]
        for profile, share in zip(PROFILES, published[row], strict=True):
            spread = np.sqrt(share * (1 - share) / trials)
            assert measured[profile] / 100 > share - 3 * spread - 1 / trials, (kind, profile)


def test_training_is_reproducible(tmp_path):
    """A few steps of both networks, twice, write the same bytes."""
    pytest.importorskip("torch", reason="needs torch")
    # With this variable a script would not import the files beside it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    for folder in ("a", "b"):
        script = NETWORKS / "training" / "train.py"
        subprocess.run(
            [sys.executable, "-W", "ignore", script, "--steps", "2", "--no-evaluate", "--out", tmp_path / folder],
            check=True,
            env=environment,
        )
    for name in ("shapes_classifier.onnx", "shapes_detector.onnx", "classes.txt"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        if name.endswith(".onnx"):
            assert (tmp_path / "a" / name).stat().st_size == (NETWORKS / name).stat().st_size < 3e6


def test_the_test_images_are_those_of_the_script(training, tmp_path):
    import make_images

    make_images.make_images(tmp_path)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == sorted(path.name for path in (NETWORKS / "images").iterdir())
    for name in files:
        if name.endswith(".png"):
            mine, theirs = (np.asarray(Image.open(folder / name), int) for folder in (tmp_path, NETWORKS / "images"))
            assert np.abs(mine - theirs).max() <= 1  # sines differ by machine
