"""Writer and reader of the container agree with each other and with the golden files."""

from __future__ import annotations

import mmap
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tcim_lite import _core, errors, hmm
from tcim_lite.hmm import layout
from tcim_lite.hmm.__main__ import main, summary
from tcim_lite.hmm.crc32c import crc32c

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests/data/hmm"
FILES = ["every_op.hmm", "external.hmm", "minimal.hmm", "shared.hmw", "two_devices.hmms"]  # version 1.0
FILES += ["mul.hmm", "ports.hmm", "ports_two_devices.hmms"]  # version 1.1
FILES += ["moe.hmm", "window.hmm"]  # version 1.2
FILES += ["softcap.hmm", "state_space.hmm"]  # version 1.7
sys.path.insert(0, str(GOLDEN))

import golden_graphs
import make_golden


@pytest.mark.parametrize("file", FILES)
def test_golden_file_says_what_it_said(file):
    container = hmm.read(GOLDEN / file)
    assert summary(container) + "\n" == (GOLDEN / f"{file}.txt").read_text()
    container.verify(hmm.read(GOLDEN / container.sibling.file) if container.sibling else None)


@pytest.mark.parametrize("file", FILES)
def test_writer_makes_the_golden_file(file, tmp_path):
    make_golden.make(tmp_path)
    assert (tmp_path / file).read_bytes() == (GOLDEN / file).read_bytes()


def test_graph_round_trip():
    graph = golden_graphs.every_op_graph(4)
    assert hmm.read(GOLDEN / "every_op.hmm").graph == graph
    assert hmm.decode_graph(hmm.encode_graph(graph)) == graph


def test_model_bytes_equal_the_written_file(tmp_path):
    arguments = golden_graphs.every_op_graph(2), golden_graphs.every_op_data()
    id_ = hmm.write_model(tmp_path / "m.hmm", *arguments, custom_msg="é", ncore=3)
    assert (tmp_path / "m.hmm").read_bytes() == hmm.model_bytes(*arguments, custom_msg="é", ncore=3)
    container = hmm.read(tmp_path / "m.hmm")
    assert (container.id, container.custom_msg, container.ncore, container.ndevice) == (id_, "é", 3, 1)
    for entry, weight in zip(container.weights, arguments[1], strict=True):
        assert bytes(container.weight_bytes(entry)) == weight.data.tobytes()


def test_parts_round_trip_in_rank_order():
    container = hmm.read(GOLDEN / "two_devices.hmms")
    assert container.graphs == (golden_graphs.part_graph(0), golden_graphs.part_graph(1))
    assert container.graph == container.graphs[0]
    assert container.split == hmm.Split([-1, -1, -1, 1, 1], [-1])
    assert container.ndevice == 2
    assert [section.kind for section in container.sections] == [1, 1, 6, 3, 4]


def test_roles_and_aliases_round_trip():
    assert hmm.read(GOLDEN / "ports.hmm").graph == golden_graphs.ports_graph()
    several = hmm.read(GOLDEN / "ports_two_devices.hmms")
    assert several.graphs == tuple(golden_graphs.with_ports(golden_graphs.part_graph(rank)) for rank in range(2))
    assert [section.kind for section in several.sections] == [1, 1, 6, 7, 3, 4]


def test_a_file_says_the_lowest_version_that_has_what_it_needs():
    versions = {path.name: hmm.read(path).version for path in GOLDEN.iterdir() if path.name in FILES}
    minor = {"moe.hmm": 2, "window.hmm": 2, "softcap.hmm": 7, "state_space.hmm": 7}
    assert versions == {name: (1, minor.get(name, int(name.startswith(("mul", "ports"))))) for name in FILES}


def test_anything_with_a_buffer_is_read(tmp_path):
    data = (GOLDEN / "every_op.hmm").read_bytes()
    with (
        open(GOLDEN / "every_op.hmm", "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        expected = hmm.read(data).id
        assert hmm.read(np.frombuffer(data, np.uint8)).id == expected
        container = hmm.read(mapped)
        assert container.id == expected
        del container  # or the map cannot be closed


def test_a_custom_msg_that_no_reader_takes_is_not_written():
    with pytest.raises(ValueError, match="custom_msg contains a NUL"):
        hmm.model_bytes(golden_graphs.every_op_graph(2), golden_graphs.every_op_data(), custom_msg="a\0b")


def test_streamed_chunks_equal_one_array(tmp_path):
    data = golden_graphs.pattern(4096, 1)
    pieces = (data, data.tobytes(), data.reshape(64, 64), data.view("<f2"))
    streams = ([data[:100], data[100:].tobytes()], (data[i : i + 7] for i in range(0, 4096, 7)))
    with hmm.WeightsWriter(tmp_path / "a.hmw") as weights:
        entries = [
            weights.add(f"w{i}", "uint8", "dense", [64, 64], source) for i, source in enumerate((*pieces, *streams))
        ]
    container = hmm.read(tmp_path / "a.hmw")
    container.verify()
    assert container.id == weights.id
    assert len({entry.hash for entry in entries}) == 1
    assert {entry.offset for entry in container.weights} == {4096}
    assert len(container.data) < 3 * 4096


def test_order_of_elements_is_that_of_the_array_not_of_its_memory(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    with hmm.WeightsWriter(tmp_path / "a.hmw") as weights:
        weights.add("w", "float32", "dense", [3, 2], array.T)
    container = hmm.read(tmp_path / "a.hmw")
    assert bytes(container.weight_bytes(container.weights[0])) == array.T.tobytes()


def test_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.hmw"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="weight 'w': 2 bytes given"), hmm.WeightsWriter(path) as weights:
        weights.add("w", "uint8", "dense", [4], b"ab")
    with pytest.raises(ValueError, match="weight 'w': 3 bytes given"):
        hmm.write_model(path, golden_graphs.minimal_graph(), [hmm.WeightData("w", "uint8", "dense", [4], b"abc")])
    assert [file.name for file in tmp_path.iterdir()] == ["a.hmw"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("w", "uint8", "dense", [4], b"abcde"), "weight 'w': more than 4 bytes given"),
        (("w", "uint8", "dense", [4], [b"ab", b"c"]), "weight 'w': 3 bytes given"),
        (("w", "float64", "dense", [4], b""), "weight 'w': dtype 'float64'"),
        (("w", "uint8", "linear_w2", [16, 64], b""), "weight 'w': format 'linear_w2'"),
        (("w", "uint8", "linear_w4", [16, 32], b""), "weight 'w': format linear_w4 needs K"),
        (("w", "int8", "linear_w8", [16, 64], b""), "weight 'w': format linear_w8 has dtype uint8"),
        (("w", "uint8", "dense", [], b""), "weight 'w': shape .* rank 0"),
        (("w", "uint8", "dense", [0], b""), "weight 'w': shape .* extent"),
        (("", "uint8", "dense", [4], b"abcd"), "weight name ''"),
        (("taken", "uint8", "dense", [4], b"abcd"), "weight 'taken' is given twice"),
    ],
)
def test_writer_refuses_weights_that_do_not_fit(arguments, match, tmp_path):
    with hmm.WeightsWriter(tmp_path / "a.hmw") as weights:
        weights.add("taken", "uint8", "dense", [4], b"abcd")
        with pytest.raises(ValueError, match=match):
            weights.add(*arguments)
        weights.add("after", "uint8", "dense", [4], b"efgh")
    container = hmm.read(tmp_path / "a.hmw")
    container.verify()
    assert [entry.name for entry in container.weights] == ["taken", "after"]


def two_ports(x: dict, y: dict) -> hmm.Graph:
    """The minimal graph with fields of its input and output."""
    graph = golden_graphs.minimal_graph()
    return replace(graph, values=[replace(graph.values[0], **x), replace(graph.values[1], **y)])


def hidden_port() -> hmm.Graph:
    graph = two_ports({}, {})
    return replace(graph, values=[*graph.values, hmm.Value("w", "intermediate", "float32", [1], aliases=["a"])])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"ncore": 0}, "ncore=0"),
        ({"producer": "x" * 32}, "producer"),
        ({"sibling": hmm.Sibling("a.hmw", bytes(32))}, "sibling"),
        ({"weights": [hmm.WeightEntry("w", "uint8", "dense", (4,), 4, bytes(32), 0)]}, "1 weights are external"),
        ({"graph": hmm.Graph("g", [hmm.Value("x", "thing", "float32", [1])], [], [0], [])}, "'thing' is not one of"),
        ({"graph": hmm.Graph("g", [], [hmm.Op("Softplus2", [], [])], [], [])}, "'Softplus2' is not one of"),
        ({"graph": hmm.Graph("g", [], [hmm.Op("Add", [0, 1], [2])], [], [])}, "names value 0, there are 0"),
        ({"graph": hmm.Graph("g", [hmm.Value("x", "weight", "int8", [1], weight=0)], [], [], [])}, "names weight 0"),
        ({"graph": []}, "0 graphs, a model is for 1 to 32 devices"),
        ({"graph": [golden_graphs.minimal_graph()] * 33}, "33 graphs"),
        ({"graph": [golden_graphs.minimal_graph()] * 2}, "must be a split section exactly when"),
        ({"split": hmm.Split([-1], [-1])}, "must be a split section exactly when"),
        ({"graph": golden_graphs.part_graph(0)}, "has an AllGather, which needs ndevice to be 2"),
        ({"graph": [golden_graphs.minimal_graph()] * 2, "split": hmm.Split([2], [-1])}, "split on axis 2"),
        ({"graph": two_ports({"role": hmm.Role("a"), "aliases": "xx"}, {})}, "alias 'x' of 'x' is empty or taken"),
        ({"graph": two_ports({"aliases": [str(n) for n in range(17)]}, {})}, "'x' has 17 aliases"),
        ({"graph": two_ports({"role": hmm.Role("a", slot=1 << 31)}, {})}, "expected a name, and numbers from 0 on"),
        ({"graph": two_ports({"role": hmm.Role("a", -1)}, {})}, "expected a name, and numbers from 0 on"),
        (
            {
                "graph": two_ports({}, {"role": hmm.Role("k_cache", 0)}),
            },
            "'y', .*; expected a state of some layer",
        ),
        ({"graph": hidden_port()}, "'w' has a role or an alias and is no input or output"),
        (
            {"graph": [two_ports({"aliases": ["a"]}, {}), two_ports({}, {})], "split": hmm.Split([-1], [-1])},
            "roles and aliases differ between the parts",
        ),
    ],
)
def test_writer_refuses_bad_arguments(options, match):
    arguments = {"graph": golden_graphs.minimal_graph(), **options}
    with pytest.raises(ValueError, match=match):
        hmm.model_bytes(**arguments)


def test_packed_bytes_is_what_the_format_page_says():
    assert hmm.packed_bytes("dense", (3, 5), "float16") == 30
    assert hmm.packed_bytes("linear_w4", (17, 64), "uint8") == 2 * 1088  # the second group's place is empty
    assert hmm.packed_bytes("linear_w8", (16, 64), "uint8") == 1088
    assert hmm.packed_bytes("linear_f16", (16, 3), "float16") == 128
    assert hmm.packed_bytes("linear_f32", (1, 3), "float32") == 192
    assert hmm.packed_bytes("linear_w8", (5, 17, 64), "uint8") == 5 * 2 * 1088


@pytest.mark.parametrize(("data", "crc"), [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"", 0)])
def test_crc32c_known_values(data, crc):
    assert crc32c(data) == crc


@pytest.mark.parametrize("nbytes", [1, 511, 512, 513, 515, 1025, 65537, (1 << 19) + 65533, (1 << 24) + 3])
def test_crc32c_of_parts_equals_crc32c_of_the_whole(nbytes):
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    whole = crc32c(data)
    for cut in (1, 300, nbytes // 3):
        assert crc32c(data[cut:], crc32c(data[:cut])) == whole


def test_ops_are_those_of_the_core():
    assert {row["name"]: row["version"] for row in _core.op_table()} == hmm.OPS


def test_every_op_is_in_a_golden_file():
    """What a file of it looks like is kept for good: for a new op, add a file with make_golden.py."""
    graphs = [
        graph for path in GOLDEN.glob("*.hmm*") if path.suffix in (".hmm", ".hmms") for graph in hmm.read(path).graphs
    ]
    assert {op.kind for graph in graphs for op in graph.ops} == set(hmm.OPS)


def test_dump_prints_and_verifies(capsys):
    assert main([str(GOLDEN / "external.hmm"), "--verify"]) == 0
    assert capsys.readouterr().out.endswith("verified\n")
    assert main([str(GOLDEN / "make_golden.py")]) == 1
    assert "text or JSON" in capsys.readouterr().err


def test_errors_carry_a_status_and_survive_pickling():
    for name in set(errors.__all__) - {"Status"}:
        error = pickle.loads(pickle.dumps(getattr(errors, name)("who: what")))
        assert str(error) == "who: what"
        assert isinstance(error, RuntimeError)
    assert errors.StateError("x").status is errors.Status.UNINITIALIZED
    error = pickle.loads(pickle.dumps(errors.TcimError("x", errors.Status.UNSUPPORTED)))
    assert error.status is errors.Status.UNSUPPORTED
    assert f"{errors.Status.OK} {errors.Status.OK!s} {errors.Status.OK:d}" == "Status.OK Status.OK 0"
    assert errors.Status.ERR_UNDEFINED == -1


def test_alignment_of_stored_weights():
    for entry in hmm.read(GOLDEN / "every_op.hmm").weights:
        assert entry.offset % layout.ALIGNMENT == 0


def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    """And not the one beside it that is renamed at the end."""
    with pytest.raises(FileNotFoundError) as missing:
        hmm.write_model(tmp_path / "no" / "m.hmm", golden_graphs.minimal_graph(), [])
    assert Path(missing.value.filename) == tmp_path / "no" / "m.hmm"
    (tmp_path / "m.hmm").mkdir()
    with pytest.raises(IsADirectoryError) as folder:
        hmm.write_model(tmp_path / "m.hmm", golden_graphs.minimal_graph(), [])
    assert Path(folder.value.filename) == tmp_path / "m.hmm"
    assert [path.name for path in tmp_path.iterdir()] == ["m.hmm"]
