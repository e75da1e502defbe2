"""Writes docs/api/*.md, the Python API reference, from signatures and docstrings. `make docs` runs it.

It reads the sources, as does what it imports of the package, so it needs no compiled core.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

from tcim_lite.marks.reader import marked_names

ROOT = Path(__file__).parent.parent
# Of tcim_lite.
PAGES = (
    "runtime",
    "dev_ctrl",
    "layers",
    "clock",
    "faults",
    "llm",
    "llm.encoders",
    "llm.engine",
    "llm.images",
    "llm.sounds",
)
NOTE = "<!-- Made by docs/make_api.py from the docstrings: change those, then run `make docs`. -->"

_STARS = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}

MARKS = (
    "Marks such as C-7 name corners of the [API contract](../conformance.md#the-api-contract).\n"
    "What is *chosen* or an *extension* says so ([status of every call](../api-status.md))."
)

_STATUSES = {each.name: each for package in ("runtime", "dev_ctrl") for each in marked_names(package)}


def pages() -> dict[str, str]:
    """File name -> Markdown of every page.

    Raises:
        ValueError: A docstring that cannot be read as Google style; the text says where.
    """
    problems = _Problems()
    griffe_log = logging.getLogger("griffe")
    griffe_log.addHandler(problems)
    try:
        loader = griffe.GriffeLoader(
            search_paths=[ROOT],
            docstring_parser=griffe.Parser.google,
            docstring_options={"returns_multiple_items": False, "returns_named_value": False},
        )
        package = loader.load("tcim_lite", submodules=True)
        loader.resolve_aliases()
        made = {f"{name}.md": _page(package[name]) for name in PAGES}
    finally:
        griffe_log.removeHandler(problems)
    if problems.texts:
        raise ValueError("\n".join(problems.texts))
    return made


class _Problems(logging.Handler):
    """Collects what griffe warns about: each is text that would be missing from the page."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _page(module: griffe.Module) -> str:
    exported = [item.final_target if (item := module[name]).is_alias else item for name in module.exports]
    functions = [item for item in exported if item.is_function]
    errors = [item for item in exported if item.is_class and item.name.endswith("Error")]
    classes = [item for item in exported if item.is_class and item not in errors]
    lines = [f"# `{module.path}`", NOTE, "", *_docstring(module), MARKS, "", "## Contents"]
    for title, items in (("Functions", functions), ("Classes", classes), ("Errors", errors)):
        if items:
            links = ", ".join(f"[`{item.name}`](#{item.name.lower()})" for item in items)
            lines.append(f"- {title}: {links}")
    lines.append("")
    for item in functions:
        lines += [f"## `{item.name}`", *_signature(item), *_docstring(item), *_status(item)]
    for item in [*classes, *errors]:
        lines += _class(item)
    return "\n".join(lines).rstrip() + "\n"


def _class(item: griffe.Class) -> Iterator[str]:
    bases = ", ".join(str(base) for base in item.bases)
    yield f"## `{item.name}`"
    constructor = item.members.get("__init__")
    if constructor is not None and not constructor.docstring:
        # Without a docstring of its own, the class says what the arguments are, or that there is no constructor.
        constructor = constructor if any(parameter.name != "self" for parameter in constructor.parameters) else None
    yield from _code(
        f"class {item.name}({bases})" if bases else f"class {item.name}",
        *([f"{item.name}{_parameters(constructor)}"] if constructor else []),
    )
    yield from _docstring(item)
    yield from _status(item)
    if constructor is not None:
        yield from _docstring(constructor)
    members = [member for name, member in item.members.items() if not name.startswith("_")]
    described = _described(item)
    values = [f"- {_value(member)}" for member in members if member.is_attribute and member.name not in described]
    yield from [*values, ""] if values else []
    for member in members:
        if member.is_function:
            yield f"### `{item.name}.{member.name}`"
            yield from _signature(member)
            yield from _docstring(member)
            yield from _status(member)


def _described(item: griffe.Class) -> set[str]:
    """Names in the "Attributes" section of the class, which need no second line."""
    sections = item.docstring.parsed if item.docstring else []
    kind = griffe.DocstringSectionKind.attributes
    return {entry.name for section in sections if section.kind is kind for entry in section.value}


def _value(member: griffe.Attribute) -> str:
    """A property, a constant, or another name of a method."""
    if "property" not in member.labels and member.value is not None:
        return f"`{member.name} = {member.value}`"
    text = " ".join(member.docstring.value.split()) if member.docstring else ""
    return " ".join([f"`{member.name}: {member.annotation}` {text}".rstrip(), *filter(None, _status(member))])


def _status(item: griffe.Object) -> Iterator[str]:
    """What its mark says, unless that is "exact"."""
    mark = _STATUSES.get(item.path.removeprefix(f"{item.module.path}."))
    if mark is not None and mark.text:
        yield f"*{mark.status.capitalize()}*: {mark.text}."
        yield ""


def _signature(function: griffe.Function) -> list[str]:
    returns = f" -> {function.returns}" if function.returns else ""
    return _code(f"{function.name}{_parameters(function)}{returns}")


def _parameters(function: griffe.Function) -> str:
    shown = []
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        stars = _STARS.get(parameter.kind, "")
        if parameter.kind is griffe.ParameterKind.keyword_only and not any(text.startswith("*") for text in shown):
            shown.append("*")
        text = stars + parameter.name
        if parameter.annotation:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not stars:  # griffe gives these the defaults () and {}
            text += f" = {parameter.default}" if parameter.annotation else f"={parameter.default}"
        shown.append(text)
    return f"({', '.join(shown)})"


def _code(*lines: str) -> list[str]:
    return ["```python", *lines, "```"]


def _docstring(item: griffe.Object) -> Iterator[str]:
    """The text, then its sections as lists."""
    if item.docstring is None:
        return
    for section in item.docstring.parsed:
        if section.kind is griffe.DocstringSectionKind.text:
            yield section.value
        elif section.kind is griffe.DocstringSectionKind.examples:
            yield "\n\n".join(value for _, value in section.value)
        else:
            yield f"**{section.kind.value.capitalize()}**"
            yield ""
            for entry in section.value:
                yield f"- {_entry(section.kind, entry)}"
        yield ""


def _entry(kind: griffe.DocstringSectionKind, entry: griffe.DocstringElement) -> str:
    text = " ".join(entry.description.split())
    named = getattr(entry, "name", None)
    if kind in (griffe.DocstringSectionKind.raises, griffe.DocstringSectionKind.warns):
        named = str(entry.annotation)
    elif kind in (griffe.DocstringSectionKind.returns, griffe.DocstringSectionKind.yields):
        # A colon in the text: what stands before it was taken for a type. Real ones are expressions, not text.
        text = f"{entry.annotation}: {text}" if isinstance(entry.annotation, str) else text
    return f"`{named}`: {text}" if named else text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "api")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
