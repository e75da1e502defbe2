"""What the documentation promises: a reference that is current, links that lead somewhere, commands that run."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from imported import imported

from tcim_lite.cli import main

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
GENERATED = ("docs/api", "docs/strict.md")  # a line for each docstring's or rule's
WRITTEN = [path for path in (*PAGES, ROOT / "CHANGELOG.md") if not str(path.relative_to(ROOT)).startswith(GENERATED)]
EXAMPLES = sorted((ROOT / "examples").glob("qwen3_*.py"))
FLOWS = re.findall(
    r"^\| (.+?) \| `(tcim-lite compile .+?)` \| `(.+?)` \|$", (ROOT / "examples/README.md").read_text(), re.M
)


def test_the_api_reference_is_what_the_docstrings_say():
    pytest.importorskip("griffe", reason="the reference is made with griffelib: pip install 'tcim-lite[docs]'")
    module = imported(ROOT / "docs/make_api.py")
    made = module.pages()
    assert {f"{name}.md" for name in module.PAGES} == set(made)
    assert sorted(path.name for path in (ROOT / "docs" / "api").iterdir()) == sorted(made)
    for name, text in made.items():
        assert (ROOT / "docs" / "api" / name).read_text(encoding="utf-8") == text, f"{name} is old: run `make docs`"


@pytest.mark.parametrize("page", ["ops", "models"])
def test_a_table_is_that_of_the_core_or_of_the_records(page):
    made = imported(ROOT / f"docs/make_{page}.py").page()
    assert (ROOT / f"docs/{page}.md").read_text(encoding="utf-8") == made, f"docs/{page}.md is old: run `make docs`"


def test_pages_count_the_families_of_the_table():
    cells = [line.split(" | ") for line in (ROOT / "docs" / "models.md").read_text().splitlines()]
    rows = [row for row in cells if len(row) == 6 and row[1].startswith("`") and row[0] != "| family"]
    seeing = sum(row[3] != "no" for row in rows)
    main_page, log = (ROOT / "README.md").read_text(), (ROOT / "CHANGELOG.md").read_text()
    assert f"[{len(rows)} families](docs/models.md)" in main_page
    assert f" {seeing} of them with vision" in main_page
    assert f"folders of {len(rows)} families (" in log
    assert f"GGUF files of {sum(row[4] != 'no' for row in rows)} families" in log


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, heading = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", title).strip().replace(" ", "-").lower() for title in titles}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_is_wrapped(page):
    """Not tables, and not what programs are given or print."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert [line for line in text.splitlines() if len(line) > 120 and not line.lstrip().startswith("|")] == []


def test_every_python_example_is_in_the_table_of_flows():
    """But those for which the demo checkpoint has no vision tower or no MTP layer."""
    assert {Path(word) for _, _, run in FLOWS for word in run.split() if word.endswith(".py")} == {
        path.relative_to(ROOT) for path in EXAMPLES if path.name not in ("qwen3_vl.py", "qwen3_5_mtp.py")
    }


@pytest.mark.slow
@pytest.mark.parametrize(("compile_line", "run_line"), [flow[1:] for flow in FLOWS], ids=[flow[0] for flow in FLOWS])
def test_the_two_lines_of_a_flow_run_as_written(tmp_path_factory, monkeypatch, compile_line, run_line):
    folder = tmp_path_factory.getbasetemp() / "flows"  # lines may share a package, as for the reader
    words = [word.replace("out/", f"{folder}/", 1) for word in shlex.split(compile_line)]
    monkeypatch.chdir(ROOT)
    if not Path(words[words.index("-o") + 1]).exists():
        assert main([*words[1:], "-q"]) == 0
    words = [word.replace("out/", f"{folder}/", 1) for word in shlex.split(run_line)]
    start = words.index("python")
    env = os.environ | dict(word.split("=", 1) for word in words[:start])
    done = warm_python.run(*words[start + 1 :], env=env)
    assert done.returncode == 0, done.stderr
    assert "12 + 30 = 42" in done.stdout or "Bob: 5558" in done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_help_of_an_example_says_how_to_compile_and_what_every_option_does(example):
    done = warm_python.run(example, "--help")
    assert done.returncode == 0, done.stderr
    assert "tcim-lite compile HF_DIR -o OUT" in done.stdout
    assert f"python examples/{example.name} OUT" in done.stdout
    options = re.findall(r"^  (--[\w-]+)(.*)(?:\n {4,}(.*))?", done.stdout, re.MULTILINE)
    assert len(options) >= 3
    for name, rest, more in options:
        assert re.search(r"[a-z]{3}", rest.partition("  ")[2] + (more or "")), f"{name} has no help"


def test_documented_options_of_the_compiler_exist(capsys):
    with pytest.raises(SystemExit):
        main(["compile", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    for page in [*PAGES, *EXAMPLES]:
        for line in re.findall(r"tcim-lite compile [^`\n#]*", page.read_text(encoding="utf-8")):
            assert set(re.findall(r"--[a-z][a-z-]*", line)) <= known, f"{page.name}: {line}"


def test_the_short_program_of_the_main_page_runs(tmp_path):
    program = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL).group(1)
    assert main(["compile", str(ROOT / "examples" / "demo_checkpoint"), "-o", str(tmp_path / "OUT"), "-q"]) == 0
    program += "print(type(next_token), next_token)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"<class 'int'> \d+\n", done.stdout)


def test_the_list_of_onnx_ops_is_that_of_the_table():
    text = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8")
    assert text == imported(ROOT / "docs/make_onnx.py").page(text), "docs/onnx.md is old: run `make docs`"
