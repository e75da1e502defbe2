"""What `tcim-lite port-check` reads of archives, folders and files that are no Python, and what it leaves out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tcim_lite.cli import main
from tcim_lite.portcheck import check, sources


@pytest.mark.parametrize("name", ["program.zip", "program.tar.gz", "program.tar.bz2", "program.tar.xz"])
def test_an_archive_has_to_be_unpacked(tmp_path, capsys, name):
    (tmp_path / "source").mkdir()
    (tmp_path / "source/program.py").write_text("import tcim_lite.runtime\n")
    stem, _, suffix = name.partition(".")
    kind = {"zip": "zip", "tar.gz": "gztar", "tar.bz2": "bztar", "tar.xz": "xztar"}[suffix]
    archive = shutil.make_archive(str(tmp_path / stem), kind, tmp_path / "source")
    assert main(["port-check", archive]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / name}: is an archive; unpack it and give the folder\n"


def test_a_file_that_is_no_python_is_a_note_in_a_folder_and_an_error_by_name(tmp_path, capsys):
    (tmp_path / "old.py").write_text("print 'hello'\n")
    report = check([tmp_path])
    assert len(report.notes) == 1
    assert "cannot be parsed" in report.notes[0]
    assert report.files == []
    (tmp_path / "notebook.ipynb").write_text('{"cells": [{"source": ["import tcim_lite.runtime"], "outputs": []}]}')
    for name in ("old.py", "notebook.ipynb"):
        assert main(["port-check", str(tmp_path / name)]) == 2
        assert "cannot be parsed" in capsys.readouterr().err


def test_a_folder_is_read_without_what_is_no_part_of_a_program(tmp_path):
    for folder in ("app", "app/.git", "app/env/lib", "app/out", "app/lib/site-packages/tool", "build", "deep/a/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "part.py").write_text("import tcim_lite.runtime as rt\nrt.load('x.hmm')\n")
        (tmp_path / folder / "notes.txt").write_text("")
    (tmp_path / "app/env/pyvenv.cfg").write_text("")
    (tmp_path / "app/out/CMakeCache.txt").write_text("")
    (tmp_path / "app/large.py").write_text("x = 1\n" * 1_000_000)
    told = []
    report = check([tmp_path], tell=told.append)
    assert report.files == [str(tmp_path / name) for name in ("app/part.py", "deep/a/b/part.py")]
    assert next(report.lines()) == f"read: {report.files[0]}, {report.files[1]}, of 5 looked at"
    assert told[-1] == 5
    assert report.notes == [
        "left out: build folders (2)",
        "left out: files over 4 MiB (1)",
        "left out: installed packages (1)",
        "left out: version control (1)",
        "left out: virtual environments (1)",
    ]
    # A folder that is named is searched whatever it is called.
    assert check([tmp_path / "build"]).files == [str(tmp_path / "build/part.py")]


def test_a_folder_of_many_programs_is_refused_before_it_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sources, "MOST_SOURCES", 3)
    for number in range(4):
        (tmp_path / f"{number}.py").write_text("")
    assert main(["port-check", str(tmp_path)]) == 2
    assert "has more than 3 sources (4 files looked at" in capsys.readouterr().err


def test_a_file_of_a_folder_that_cannot_be_read_is_a_note(tmp_path, monkeypatch):
    (tmp_path / "good.py").write_text("")
    (tmp_path / "locked.py").write_text("")
    read = Path.read_bytes

    def refuse(path):
        if path.name == "locked.py":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    report = check([tmp_path])
    assert report.files == [str(tmp_path / "good.py")]
    assert report.notes == [f"{tmp_path / 'locked.py'} cannot be read (Permission denied); it was left out"]
    with pytest.raises(PermissionError):
        check([tmp_path / "locked.py"])


def test_a_source_that_nests_too_deeply_leaves_the_others_read(tmp_path):
    (tmp_path / "deep.py").write_text("x = " + "-" * 200_000 + "1\n")
    (tmp_path / "part.py").write_text("import tcim_lite.runtime as rt\n")
    report = check([tmp_path])
    assert report.files == [str(tmp_path / "part.py")]
    assert any("deep.py cannot be parsed" in note for note in report.notes)
