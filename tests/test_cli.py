"""The command as a whole; its sub-commands have tests of their own."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_graphs import add_graph
from warm_python import ISOLATED

import tcim_lite
import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.cli import main, make_parser


def run(*arguments: object, **keywords) -> subprocess.CompletedProcess:
    command = [sys.executable, ISOLATED, "-m", "tcim_lite", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **keywords)


def test_python_m_tcim_lite_is_the_command():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"tcim-lite {tcim_lite.__version__}\n")
    done = run("inspect", "/none.hmm")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("words", [["-c", "import tcim_lite.runtime"], ["-m", "tcim_lite", "smi"]])
def test_python_in_the_source_tree_says_where_to_run_it(tmp_path, words):
    shutil.copytree(Path(__file__).parent.parent / "tcim_lite", tmp_path / "tcim_lite")
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"{tmp_path / 'tcim_lite'} is a source tree without the compiled core" in done.stderr.splitlines()[-1]
    hmm = subprocess.run([sys.executable, "-c", "import tcim_lite.hmm"], cwd=tmp_path, timeout=60)
    assert hmm.returncode == 0


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "tcim_lite", "smi"],  # printed at the end
        ["-m", "tcim_lite", "port-check", "--table"],  # longer than what Python keeps
        ["-c", "from tcim_lite.cli.hm_smi import entry_point; entry_point()", "-a"],
    ],
)
def test_a_reader_that_goes_away_ends_a_command_without_a_word(command):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, ISOLATED, *command]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_closed_standard_output_is_no_failure():
    command = [sys.executable, ISOLATED, "-m", "tcim_lite", "explain"]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(ISOLATED == "-I", reason="Python 3.10 would not see PYTHONIOENCODING")
@pytest.mark.parametrize("name", ["é", "\udcff"])
def test_a_character_that_standard_output_cannot_show_is_escaped(tmp_path, add_model, name):
    path = tmp_path / f"{name}.hmm"
    shutil.copy(add_model, path)
    for encoding in ("ascii", "utf-8"):
        done = run("inspect", path, env=os.environ | {"PYTHONIOENCODING": encoding})
        assert (done.returncode, done.stderr) == (0, "")
        shown = name if (name, encoding) == ("é", "utf-8") else name.encode("ascii", "backslashreplace").decode()
        assert done.stdout.startswith(f"{tmp_path}/{shown}.hmm  model")
    done = run("conformance", "--only", "no such case", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (3, "")


def test_inspect_of_a_folder_goes_on_after_a_foreign_file(tmp_path, add_model, capfd):
    shutil.copy(add_model, tmp_path / "b.hmm")
    (tmp_path / "a.hmm").write_bytes(b"\x7fELF\2\1\1")
    (tmp_path / "c.hmm").mkdir()
    (tmp_path / "hmquant").mkdir()
    assert main(["inspect", str(tmp_path)]) == 2
    printed, errors = capfd.readouterr()
    assert f"{tmp_path / 'b.hmm'}  model" in printed
    assert "hmquant/" in printed
    assert "a.hmm: not a .hmm of this project: it looks like an ELF program" in errors
    assert "c.hmm: cannot be read" in errors
    assert errors.count("error: ") == 2


SECRET = b"-----BEGIN SECRET\x1b[31m"


@pytest.mark.parametrize("content", [SECRET, b"\x90" + SECRET, SECRET.replace(b"\x1b", b""), b"\x08\x07\x12" + SECRET])
def test_bytes_of_a_foreign_file_are_not_printed(tmp_path, capfd, content):
    path = tmp_path / "key.hmm"
    path.write_bytes(content)
    assert main(["inspect", str(path)]) == 2
    with pytest.raises(rt.HmmFormatError, match="of this project: ") as caught:
        rt.load(path)
    for text in (*capfd.readouterr(), str(caught.value)):
        assert "SECRET" not in text
        assert "-----" not in text
        assert "\x1b" not in text


@pytest.mark.parametrize(
    ("content", "kind", "give"),
    [
        (b"GGUF\3\0\0\0", "a GGUF file", "MODEL.gguf"),
        (b"\x08\x07\x12\x07pytorch", "an ONNX model", "MODEL.onnx"),
        (b'\x10\0\0\0\0\0\0\0{"a":1}', "a safetensors file", "HF_DIR"),
        (b"PK\x03\x04", "a zip archive", "HF_DIR"),
    ],
)
def test_a_model_of_another_kind_comes_with_the_command_that_compiles_it(tmp_path, capfd, content, kind, give):
    path = tmp_path / "x.hmm"
    path.write_bytes(content)
    words = rf"it looks like {kind}.*; compile .* `tcim-lite compile {give} -o OUT`"
    with pytest.raises(rt.HmmFormatError, match=words):
        rt.load(path)
    assert main(["inspect", str(path)]) == 2
    assert re.search(words, capfd.readouterr().err)


def test_what_a_model_says_of_itself_is_no_command_to_a_terminal(tmp_path, capfd):
    hmm.write_model(tmp_path / "m.hmm", add_graph(), [], custom_msg='{"kind": "\\u001b[31m"}')
    assert main(["inspect", str(tmp_path / "m.hmm")]) == 0
    assert "custom_msg: kind=?[31m" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("network", b"\x08\x07\x12\x07pytorch", "it looks like an ONNX model; compile it with `tcim-lite"),
        ("x.hmm", None, "it is a compiled file already"),
        ("config.json", b"{}", "it looks like text or JSON; give the checkpoint's folder"),
        ("x.bin", b"\x01\x02", "its first bytes are not known here"),
        ("x.gguf", b"", "it is empty, as an interrupted copy leaves it; copy it again"),
    ],
)
def test_compile_of_a_file_says_what_it_is(tmp_path, add_model, capfd, name, content, words):
    path = tmp_path / name
    path.write_bytes(add_model.read_bytes() if content is None else content)
    assert main(["compile", str(path), "-o", str(tmp_path / "out")]) == 2
    assert (
        f"{path} is a file, expected a Hugging Face checkpoint folder or a GGUF file: {words}" in capfd.readouterr().err
    )


def completed(shell, script, *words):
    """What the shell offers for the last of these words."""
    line = " ".join(map(shlex.quote, words))
    text = f'{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _tcim_lite; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run([shell, "-c", text], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_bash_completes_commands_options_and_values(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed("bash", script, "tcim-lite", "c") == ["chat", "compile", "completion", "conformance"]
    assert completed("bash", script, "tcim-lite", "compile", "--quant", "w8a8h1") == ["w8a8h1_sefp"]
    assert set(completed("bash", script, "tcim-lite", "smi", "-")) == {"-h", "--help", "--json"}
    assert completed("bash", script, "tcim-lite", "conformance", "--tier", "") == ["quick", "full", "llm", "stress"]
    assert completed("bash", script, "tcim-lite", "completion", "f") == ["fish"]
    assert completed("bash", script, "tcim-lite", "inspect", "") == []  # files, which bash adds itself


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_of_other_shells_has_every_option(capsys, shell):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name, parser in make_parser()._subparsers._group_actions[0].choices.items():
        assert name in script
        for option in parser._option_string_actions:
            assert option in script if shell == "zsh" else re.search(rf"-[ls] {option.lstrip('-')}\b", script)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=30)


@pytest.mark.slow
def test_conformance_shows_its_progress_at_a_terminal_only():
    """A pseudo-terminal sees each case; a pipe sees what it always saw."""
    command = [sys.executable, ISOLATED, "-m", "tcim_lite", "conformance", "--only", "C-19"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "\r" not in done.stdout
    parent, child = pty.openpty()
    process = subprocess.Popen(command, stdout=child)
    os.close(child)
    seen = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(parent, 4096):
            seen += part
    assert process.wait(60) == 0
    os.close(parent)
    count = int(re.search(r"^(\d+) cases", done.stdout, re.MULTILINE)[1])
    assert re.search(rf"\r\x1b\[K{count} of {count} cases, \d+ s: corner_identity::", seen.decode())
    shown = [line.rpartition("\x1b[K")[2] for line in seen.decode().splitlines()]
    assert [line for line in shown if line][:2] == done.stdout.splitlines()[:2]
