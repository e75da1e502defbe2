"""Files that are no recordings, or damaged ones: an error that says so, whatever the bytes."""

from __future__ import annotations

import contextlib
import random
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from mutation import count
from recordings import PROGRAM, record

from tcim_lite.cli import main
from tcim_lite.replay import Recording, RecordingError, RecordingWriter, compression, replay
from tcim_lite.replay.container import CALLS, DATA, MAGIC, META
from tcim_lite.replay.fingerprint import fingerprint
from tcim_lite.replay.redact import pack
from tcim_lite.replay.show import call_line, overview

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEADER = struct.pack("<8sHHI", MAGIC, 1, 0, 0)


def chunk(kind: int, content: bytes, compression: int = 0, plain: int | None = None) -> bytes:
    """With a checksum that matches."""
    head = struct.pack("<IIQQ", kind, compression, len(content), len(content) if plain is None else plain)
    return head + struct.pack("<Q", fingerprint(head + content)) + content


META_CHUNK = chunk(META, b'{"data":"all"}')
WORD = struct.pack("<Q", fingerprint(b"abcd"))


def read(tmp_path: Path, content: bytes) -> Recording:
    path = tmp_path / "x.tcimrec"
    path.write_bytes(content)
    return Recording(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no recording: it begins with b''"),
        (b"\x7fELF" + bytes(60), "no recording: it begins with b'.x7fELF"),
        (HEADER[:12], "no recording"),
        (HEADER, "no meta chunk"),
        (struct.pack("<8sHHI", MAGIC, 2, 0, 0), r"version 2\.0 of the format; this reader knows 1\.x"),
        (HEADER + META_CHUNK[:-1] + b"?", "meta chunk at 16: the checksum does not match"),
        (HEADER + chunk(META, b"{", 7), "compression 7 is unknown"),
        (HEADER + chunk(META, b"{}", 0, 5), "2 bytes that stand for 5"),
        (HEADER + chunk(META, b"{}", 1, 1 << 40), "2 bytes that stand for"),
        (HEADER + chunk(META, b"{}", 1, 60_000_000), "2 bytes cannot stand for 60000000"),
        (HEADER + chunk(META, b"{}", 1, 2), "meta chunk at 16: .*header"),
        (HEADER + chunk(META, zlib.compress(b"{} "), 1, 2), "does not unpack to 2 bytes"),
        (HEADER + chunk(META, b"{}", 2, 2), "meta chunk at 16: ZstdError"),
        (HEADER + chunk(META, b"{}", 2, 60_000_000), "2 bytes cannot stand for 60000000"),
        (HEADER + chunk(META, zstd.compress(b"{} "), 2, 2), "does not unpack to 2 bytes"),
        (HEADER + chunk(META, zstd.compress(b"{}") + b"x", 2, 2), "does not unpack to 2 bytes"),
        (HEADER + chunk(META, zstd.compress(b"{}")[:-1], 2, 2), "does not unpack to 2 bytes"),
        (HEADER + chunk(META, b"[1]"), "expected a JSON object"),
        (HEADER + chunk(META, b"\xff"), "no JSON"),
        (HEADER + chunk(META, b'{"a":' * 40 + b"1" + b"}" * 40), "at most 32 levels"),
        (HEADER + chunk(META, b'{"a":' * 99999), "no JSON"),
        (HEADER + META_CHUNK + chunk(CALLS, b'{"a"'), "calls chunk at 62: no JSON"),
        (HEADER + META_CHUNK + chunk(DATA, b"abc"), "data chunk at 62: 3 bytes have no fingerprint"),
        (HEADER + META_CHUNK + chunk(4, b'{"records":1,"data":0}'), "it counts 1 records and 0 data, the file has 0"),
        (HEADER + META_CHUNK + chunk(4, b'{"records":0,"data":0}') + b"x", "1 bytes after the end chunk"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused(tmp_path, content, message):
    with pytest.raises(RecordingError, match=message):
        read(tmp_path, content)


def test_bad_data_is_found_when_it_is_used(tmp_path):
    made = read(tmp_path, HEADER + META_CHUNK + chunk(DATA, WORD + b"abcd"))
    assert made.data(fingerprint(b"abcd")) == b"abcd"
    made = read(tmp_path, HEADER + META_CHUNK + chunk(DATA, WORD + b"abce"))
    with pytest.raises(RecordingError, match="do not have their fingerprint"):
        made.data(fingerprint(b"abcd"))
    made = read(tmp_path, HEADER + META_CHUNK + chunk(DATA, WORD + b"abcd")[:-1] + b"e")
    with pytest.raises(RecordingError, match="the checksum does not match"):
        made.data(fingerprint(b"abcd"))
    with pytest.raises(RecordingError, match="were not recorded"):
        made.data(1)


def test_a_cut_off_recording_keeps_what_was_whole(tmp_path):
    path = tmp_path / "x"
    with RecordingWriter(path, {"data": "all"}) as writer:
        for number in range(3):
            writer.add_record({"call": "get_version", "at": number})
    whole = path.read_bytes()
    assert Recording(path).complete
    for end in range(len(whole)):
        with contextlib.suppress(RecordingError):  # without a meta chunk
            made = read(tmp_path, whole[:end])
            assert len(made.records) <= 3
            assert not made.complete


def test_chunks_of_a_later_minor_version_are_skipped(tmp_path):
    later = struct.pack("<8sHHI", MAGIC, 1, 9, 0)
    assert read(tmp_path, later + META_CHUNK + chunk(77, b"new", 9, 1 << 50)).version == (1, 9)


def test_data_are_stored_once_and_compressed(tmp_path):
    path, content = tmp_path / "x", np.random.default_rng(3).integers(0, 9, 100_000, np.uint8).tobytes()
    with RecordingWriter(path, {"data": "all"}) as writer:
        for _ in range(9):
            writer.add_data(content, fingerprint(content))
    assert path.stat().st_size < 60_000
    assert Recording(path).data(fingerprint(content)) == content


@pytest.mark.parametrize(
    "bad",
    [
        {"call": 3},
        {"call": "Module.load", "module": 1, "load": {"devices": ["x"]}, "name": "add.hmm"},
        {"call": "Module.load", "module": 1 << 80, "load": {}},
        {"call": "Module.set_input", "module": 9},
        {"call": "Tensor.allocate", "info": {"dtype": "float99", "shape": [1]}},
        {"call": "Tensor.allocate", "info": {"dtype": "float32", "shape": [1 << 30, 1 << 30]}},
        {"call": "Tensor.numpy", "self": {"id": 1, "dtype": "float32", "shape": [-1]}},
        {"call": "Tensor.from_array", "info": {"dtype": "int8", "shape": [1]}, "array": {"dtype": "int8", "hash": "?"}},
        {"call": "Tensor.from_array", "info": {"dtype": "int8", "shape": [1]},
         "array": {"dtype": "int8", "shape": [1], "hash": "0", "value": 4000}},
    ],
)  # fmt: skip
def test_a_bad_record_is_refused(tmp_path, bad):
    path = tmp_path / "x"
    with RecordingWriter(path, {"data": "all"}) as writer:
        writer.add_record(bad)
    with pytest.raises(RecordingError):
        replay(path)
    assert main(["replay", str(path)]) == 2


def mutated(content: bytes, rng: random.Random) -> bytes:
    """With a few bytes changed, dropped or doubled; in half of the cases the checksums are right again."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(made))
        match rng.randrange(4):
            case 0:
                made[at] = rng.randrange(256)
            case 1:
                made[at] ^= 1 << rng.randrange(8)
            case 2:
                del made[at : at + rng.choice((1, 8, 64))]
            case _:
                made[at:at] = made[at : at + rng.choice((1, 8, 64))]
    return repaired(bytes(made)) if rng.random() < 0.5 else bytes(made)


def repaired(content: bytes) -> bytes:
    parts, at = [content[:16]], 16
    while at + 32 <= len(content):
        head = content[at : at + 24]
        stored = struct.unpack("<IIQQ", head)[2]
        body = content[at + 32 : at + 32 + stored]
        parts += [head, struct.pack("<Q", fingerprint(head + body)), body]
        at += 32 + stored
    return b"".join(parts)


@pytest.mark.parametrize("cut", [0, 1000])
def test_a_packed_copy_holds_the_same_and_is_smaller(tmp_path, add_model, attention_pair, capsys, cut):
    file, copy = tmp_path / "x.tcimrec", tmp_path / "packed.tcimrec"
    record(PROGRAM, file, add_model, *attention_pair)
    file.write_bytes(file.read_bytes()[: file.stat().st_size - cut])
    assert main(["record-info", str(file), "--pack", str(copy)]) == 0
    assert "packed.tcimrec  recording, format 1.1" in capsys.readouterr().out
    plain, packed = Recording(file), Recording(copy)
    assert (packed.meta, packed.records, packed.complete) == (plain.meta, plain.records, not cut)
    assert {each: packed.data(each) for each in packed.data_hashes()} == {
        each: plain.data(each) for each in plain.data_hashes()
    }
    assert copy.stat().st_size < file.stat().st_size / 2
    done = replay(packed)
    assert (done.compared > 0, done.mismatches) == (True, [])
    assert main(["record-info", str(file), "--redact", str(tmp_path / "redacted")]) == 0
    assert Recording(tmp_path / "redacted").complete == (not cut)
    assert main(["record-info", str(copy), "--pack", str(copy)]) == 2
    assert "a copy needs a name of its own" in capsys.readouterr().err


def test_without_zstd_the_error_says_what_to_install(tmp_path, monkeypatch):
    file, copy = tmp_path / "x", tmp_path / "packed"
    with RecordingWriter(file, {"data": "all"}) as writer:
        for _ in range(100):
            writer.add_record({"call": "Module.sync"})
    pack(Recording(file), copy)
    monkeypatch.setattr(compression, "_zstd", lambda: None)
    for action in (lambda: Recording(copy), lambda: pack(Recording(file), tmp_path / "other")):
        with pytest.raises(RecordingError, match=r"pip install backports\.zstd"):
            action()
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("is_packed", [False, True])
def test_mutated_recordings_are_read_or_refused(tmp_path, add_model, attention_pair, is_packed):
    """Nothing but a RecordingError comes out of reading, showing and replaying."""
    file, path = tmp_path / "whole.tcimrec", tmp_path / "mutated.tcimrec"
    record(PROGRAM, file, add_model, *attention_pair, data="states")
    if is_packed:
        pack(Recording(file), tmp_path / "packed")
        file = tmp_path / "packed"
    content, rng, seen = file.read_bytes(), random.Random(24), {True: 0, False: 0}
    content = content[: len(content) // 8] + content[-2000:] if len(content) > 400_000 else content
    files = count(300)
    for _ in range(files):
        path.write_bytes(mutated(content, rng))
        good = False
        with contextlib.suppress(RecordingError):
            recording = Recording(path)
            assert list(overview(recording))
            for index, entry in enumerate(recording.records):
                assert call_line(index, entry)
            for hashed in recording.data_hashes():
                with contextlib.suppress(RecordingError):
                    assert isinstance(recording.data(hashed), bytes)
            if seen[True] < max(60, files // 50):
                replay(recording)
            good = True
        seen[good] += 1
    assert min(seen.values()) >= 30, seen


@pytest.mark.parametrize("name", ["one", "link"])
def test_two_writers_of_one_file_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("one")
    with RecordingWriter(tmp_path / "one", {"data": "all"}) as first:
        with pytest.raises(RecordingError, match=f"{name}: another recording is written into this file; end that"):
            RecordingWriter(name, {})
        first.add_record({"call": "Module.run"})
    assert Recording(tmp_path / "one").complete
    RecordingWriter(name, {}).close()


def test_a_recording_can_go_where_no_file_is(tmp_path):
    RecordingWriter("/dev/null", {}).close()
