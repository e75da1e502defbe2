"""Reports of a run: the terminal's, and the files of --report."""

from __future__ import annotations

from pathlib import Path

from ..results import Run


def write_all(run: Run, folder: Path) -> None:
    """Writes index.html, report.json and junit.xml."""
    from . import html, json_file, junit  # `tcim-lite` reads the suite's options, whatever it is called for

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json_file.text(run), encoding="utf-8")
    (folder / "junit.xml").write_bytes(junit.document(run))
    (folder / "index.html").write_text(html.page(run), encoding="utf-8")
