"""Pictures of the graphs of files: what is drawn, and what a hostile file can do."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from drawn import blocks, numbers, of_class
from tiny_graphs import add_graph
from warm_python import ISOLATED

import tcim_lite.conformance
from tcim_lite import hmm
from tcim_lite.cli import main
from tcim_lite.drawing import draw, page, parts_of, svg
from tcim_lite.drawing.fold import Repeat, fold
from tcim_lite.errors import ArgumentError, HmmFormatError

MODELS = Path(tcim_lite.conformance.__file__).parent / "models"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = "</title><script>alert(1)</script>\"'&]]>\x01\x1b[31m\u202eabc"


@pytest.mark.parametrize("file", sorted(path.name for path in MODELS.glob("*.hmm*")))
def test_every_op_input_output_weight_and_state_is_drawn(file):
    for part in parts_of(MODELS / file):
        graph = part.graph
        root = ElementTree.fromstring(svg(part, folded=False))
        assert sorted(numbers(of_class(root, "op"), "data-op")) == list(range(len(graph.ops)))
        shown = set(numbers([e for e in root.iter() if e.get("data-value")], "data-value"))
        read = {id_ for op in graph.ops for id_ in op.inputs}
        assert {*graph.inputs, *graph.outputs} - {i for i in graph.inputs if graph.values[i].kind == "state"} <= shown
        for kind in ("weight", "state"):
            chips = set(numbers(of_class(root, kind), "data-value"))
            assert chips == {id_ for id_ in read if graph.values[id_].kind == kind}


def test_layers_are_folded_and_say_which_they_are():
    for name in ("llm_decode", "llm_verify", "llm_decode_batch"):
        (part,) = parts_of(MODELS / f"{name}.hmm")
        root = ElementTree.fromstring(svg(part))
        ((start, period, count),) = blocks(root)
        assert count == 2
        rest = set(range(len(part.graph.ops))) - set(range(start + period, start + period * count))
        assert sorted(numbers(of_class(root, "op"), "data-op")) == sorted(rest)
        (note,) = of_class(root, "strip-note")
        assert note.text.startswith(f"layers 0 to 1 · {period} ops · weights ")


def test_bytes_of_the_drawing_are_those_of_the_file():
    (part,) = parts_of(MODELS / "llm_decode.hmm")
    root = ElementTree.fromstring(svg(part, folded=False))
    ids = {part.graph.values[id_].weight for id_ in numbers(of_class(root, "weight"), "data-value")}
    assert sum(part.container.weights[id_].nbytes for id_ in ids) == sum(w.nbytes for w in part.container.weights)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page("m", [part]))[1])
    by_name = {value[0]: value[5] for value in data[0]["values"] if value[1] == "weight"}
    assert by_name == {weight.name: weight.nbytes for weight in part.container.weights}


def test_a_block_counts_the_weights_that_only_it_reads():
    (part,) = parts_of(MODELS / "llm_decode.hmm")
    (block,) = (item for item in fold(part.graph) if isinstance(item, Repeat))
    inside = {i for op in part.graph.ops[block.start : block.stop] for i in op.inputs}
    outside = {
        i for at in {*range(block.start), *range(block.stop, len(part.graph.ops))} for i in part.graph.ops[at].inputs
    }
    values = part.graph.values
    owned = {values[i].weight for i in inside - outside if values[i].weight is not None}
    nbytes = sum(part.container.weights[weight].nbytes for weight in owned)
    (note,) = of_class(ElementTree.fromstring(svg(part)), "strip-note")
    assert f"weights {nbytes / 1e3:.3g} kB" in note.text


def hostile_package(tmp_path):
    values = [
        hmm.Value(HOSTILE, "input", "float16", (2, 3), role=hmm.Role(HOSTILE + "role")),
        hmm.Value("y" * 1024, "intermediate", "float16", (2, 3)),
    ]
    graph = hmm.Graph(
        HOSTILE, values, [hmm.Op("Transpose", [0], [1], {"axes": HOSTILE, HOSTILE: "]]>" * 300})], [0], [1]
    )
    path = tmp_path / "<b>&\"'.hmm"
    hmm.write_model(path, graph, [], custom_msg=HOSTILE)
    return path


def test_names_of_a_hostile_file_stay_text(tmp_path):
    path = hostile_package(tmp_path)
    draw(path, tmp_path / "o.svg")
    draw(path, tmp_path / "o.html")
    root = ElementTree.parse(tmp_path / "o.svg").getroot()  # well-formed, in spite of control characters
    tags = Counter(element.tag.split("}")[1] for element in root.iter())
    assert set(tags) <= {"svg", "style", "g", "rect", "text", "title", "path", "line", "circle"}
    assert any(
        "<script>alert(1)</script>" in (title.text or "") for title in root.iter() if title.tag.endswith("title")
    )
    text = (tmp_path / "o.html").read_text(encoding="utf-8")
    assert len(re.findall(r"<script", text)) == 2  # the data and the program
    assert "<b>" not in text.replace("<header><b>", "", 1)
    for shown in (text, (tmp_path / "o.svg").read_text(encoding="utf-8")):
        assert not set("\x01\x1b\u202e") & set(shown)
        assert "y" * 400 not in shown


def test_a_page_loads_nothing_and_runs_only_its_own_script(tmp_path):
    text = page("m", parts_of(MODELS / "add.hmm"))
    assert "default-src 'none'" in text
    assert "script-src 'sha256-" in text
    assert "://" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.skipif(BROWSER is None, reason="no chromium")
def test_a_page_shows_the_operands_of_an_op_and_no_hostile_name_runs(tmp_path):
    draw(hostile_package(tmp_path), tmp_path / "hostile.html")
    draw(MODELS / "llm_decode.hmm", tmp_path / "llm.html")
    shown = []
    for url in (tmp_path / "hostile.html").as_uri() + "#op=0", (tmp_path / "llm.html").as_uri() + "#op=35":
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'user'}"]
        command += ["--virtual-time-budget=2000", "--dump-dom", url]
        shown.append(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)
    panels = [text[text.index('<aside id="panel">') : text.index("</aside>")] for text in shown]
    assert "<h2>Transpose</h2>" in panels[0]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in panels[0]
    assert "repeat 2 of 2" in panels[1]
    assert "state v_cache, layer 1, slot 0" in panels[1]
    assert 'class="op attention on"' in shown[1]


def test_the_same_package_gives_the_same_bytes_in_every_process(tmp_path):
    script = "import sys, pathlib; from tcim_lite.drawing import draw; draw(*map(pathlib.Path, sys.argv[1:]))"
    for seed in "1", "2":
        command = [sys.executable, ISOLATED, "-c", script, MODELS, tmp_path / f"{seed}.html"]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": seed})
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()


def test_parts_of_devices_are_drawn_one_by_one(tmp_path):
    assert [part.name for part in parts_of(MODELS / "heads_2_1.hmms")] == ["heads_2_1:0", "heads_2_1:1"]
    draw(MODELS / "heads_2_1.hmms", tmp_path / "o.svg", "heads_2_1:1")
    assert "graph of heads_2_1:1" in (tmp_path / "o.svg").read_text(encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"has the graphs heads_2_1:0, heads_2_1:1; an .svg shows one: add --part"):
        draw(MODELS / "heads_2_1.hmms", tmp_path / "o.svg")
    with pytest.raises(ArgumentError, match="has no graph 'x'; it has heads_2_1:0, heads_2_1:1"):
        draw(MODELS / "heads_2_1.hmms", tmp_path / "o.svg", "x")


def test_wrong_files_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match=r"'o.png' ends in neither of .svg, .html"):
        draw(MODELS / "add.hmm", Path("o.png"))
    with pytest.raises(HmmFormatError, match=r"llm.hmw has no graph; expected a .hmm"):
        draw(MODELS / "llm.hmw", tmp_path / "o.svg")
    with pytest.raises(HmmFormatError, match="has no graph"):
        draw(tmp_path, tmp_path / "o.svg")


def test_the_command_draws_a_folder_in_spite_of_a_foreign_file(tmp_path, capfd):
    hmm.write_model(tmp_path / "b.hmm", add_graph(), [])
    (tmp_path / "a.hmm").write_bytes(b"\x7fELF\2\1\1")
    out = tmp_path / "o.svg"
    assert main(["inspect", str(tmp_path), "--graph", str(out)]) == 2
    printed, errors = capfd.readouterr()
    assert printed == f"{out}  {out.stat().st_size / 1e6:.2f} MB\n"
    assert "it looks like an ELF program" in errors
    assert len(of_class(ElementTree.parse(out).getroot(), "op")) == 1
    assert main(["inspect", str(tmp_path), "--part", "b"]) == 2
    assert "--part goes with --graph" in capfd.readouterr().err


def test_a_picture_that_cannot_be_written_whole_leaves_no_file(tmp_path, capfd):
    hmm.write_model(tmp_path / "b.hmm", add_graph(), [])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        assert main(["inspect", str(tmp_path), "--graph", str(tmp_path / "o.html")]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert capfd.readouterr().err == f"error: {tmp_path / 'o.html'}: File too large\n"
    assert not (tmp_path / "o.html").exists()
