"""Each error of the format has a file, built here from bytes; both readers refuse it with the same meaning."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hmm_bytes import G, Part, W, container, part, port, weight, with_parts, with_ports, with_weights
from malformed_files import CASES

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.errors import HmmFormatError


@pytest.fixture(scope="session")
def cpp_message() -> Callable[[bytes], str]:
    """What the C++ reader says to a file."""

    def message(data: bytes) -> str:
        try:
            rt.load(data)
        except HmmFormatError as error:
            return str(error)
        return "accepted"

    return message


@pytest.mark.parametrize("name", CASES)
def test_python_reader_refuses(name):
    data, match = CASES[name]
    with pytest.raises(HmmFormatError, match=match):
        hmm.read(data)


@pytest.mark.parametrize("name", CASES)
def test_cpp_reader_refuses(name, cpp_message):
    data, match = CASES[name]
    assert re.search(match, cpp_message(data))


def test_messages_tell_the_causes_apart():
    messages = set()
    for data, _ in CASES.values():
        with pytest.raises(HmmFormatError) as caught:
            hmm.read(data)
        messages.add(str(caught.value))
    assert len(messages) > 0.9 * len(CASES)


def test_builder_of_this_file_makes_legal_files():
    assert hmm.read(container([G, W])).graph.name == "g"
    assert hmm.read(with_parts(part(0), part(1))).ndevice == 2
    both = with_weights(weight("a", hash=b"h" * 32), weight("b", hash=b"h" * 32))
    assert [entry.offset for entry in hmm.read(both).weights] == [4096, 4096]


def test_newer_minor_with_optional_section_is_read(cpp_message):
    data = container([G, W, Part(99, b"later", flags=4, reserved=1)], version=(1, 9))
    assert hmm.read(data).version == (1, 9)
    assert "error" not in cpp_message(data)


def test_a_ports_section_before_version_1_1_means_nothing(cpp_message):
    data = container([G, Part(7, b"anything", flags=0), W], version=(1, 0))
    assert hmm.read(data).graph.values[0].role is None
    assert "error" not in cpp_message(data)


def test_roles_nobody_knows_are_kept(cpp_message):
    data = with_ports((port("a_later_role", 0, 3, ("u",)),))
    assert hmm.read(data).graph.values[0].role == hmm.Role("a_later_role", 0, 3)
    assert "error" not in cpp_message(data)


@pytest.mark.parametrize("nbytes", range(0, 520, 37))
def test_python_reader_refuses_every_cut(nbytes):
    data = container([G, W])
    with pytest.raises(HmmFormatError):
        hmm.read(data[: min(nbytes, len(data) - 1)])


def test_damaged_weight_is_found_by_verify():
    data = bytearray(hmm.model_bytes(hmm.read(container([G, W])).graph, [_weight_data()]))
    data[-1] ^= 1
    with pytest.raises(HmmFormatError, match="weight 'w' has CRC-32C"):
        hmm.read(bytes(data)).verify()


def test_wrong_sibling_names_both_ids(tmp_path):
    ids, entries = [], []
    for file, seed in (("a.hmw", 1), ("b.hmw", 2)):
        with hmm.WeightsWriter(tmp_path / file) as writer:
            entries.append(writer.add("w", "uint8", "dense", [4], bytes([seed] * 4)))
        ids.append(writer.id)
    sibling = hmm.Sibling("a.hmw", ids[0])
    hmm.write_model(tmp_path / "m.hmm", hmm.read(container([G, W])).graph, [entries[0]], sibling=sibling)
    model = hmm.read(tmp_path / "m.hmm")
    model.verify(hmm.read(tmp_path / "a.hmw"))
    with pytest.raises(HmmFormatError, match=f"{ids[0].hex()}.*{ids[1].hex()}"):
        model.verify(hmm.read(tmp_path / "b.hmw"))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(HmmFormatError, match="cannot be read"):
        hmm.read(tmp_path / "missing.hmm")
    with pytest.raises(HmmFormatError, match="cannot be read"):
        hmm.read(tmp_path)


def _weight_data() -> hmm.WeightData:
    return hmm.WeightData("w", "uint8", "dense", [4], b"abcd")
