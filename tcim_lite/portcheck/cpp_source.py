"""Which names of the API a C++ program uses, and risky patterns in it, from its text without a compiler."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ..errors import Status
from .api import CPP, unknown
from .findings import Place, Risk, Use, risk

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.M)
_HEADERS = {name: name for name in CPP if name.endswith((".h", "/"))}
_TYPES = sorted(name for name in CPP if re.fullmatch(r"(?!Get)[A-Z]\w+", name))
_NESTED = {"WeightManager": "Module::WeightManager", "Option": "Module::Option", "RunOption": "Module::RunOption"}
_IMAGES = ("Resizer", "ColorConverter", "ImageRunner")  # classes of ImageOps
# Methods that tell their class; those of ImageOps have the names of a module's, which is the rule.
_MEMBERS = [name for name in CPP if "::" in name and not name.startswith("ImageOps::")]
_METHODS = Counter(name.rpartition("::")[2] for name in _MEMBERS)
_OWNER = {name.rpartition("::")[2]: name for name in _MEMBERS}
_ENUMERATORS = re.compile(
    rf"({'|'.join(Status.__members__)}|U?INT(8|16|32)|FLOAT(16|32)|ND|YUV\w+|CPU|HDPL|k\w+|"
    r"Nearest|Bilinear|AlignCorner\w+)$"
)
_NOT_FUNCTIONS = {"if", "for", "while", "switch", "catch", "return", "sizeof", "do", "else"}


@dataclass(frozen=True)
class CppFile:
    """A source or header.

    Attributes:
        shown: The path in messages.
        text: As it is in the file.
    """

    shown: str
    text: str

    @cached_property
    def code(self) -> str:
        """The text with comments and literals blanked out; offsets and lines stay."""
        pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''

        def blank(found: re.Match[str]) -> str:
            kept = found[0][0] if found[0][0] in "\"'" else " "
            return kept + re.sub(r"[^\n]", " ", found[0][1:-1]) + (kept if len(found[0]) > 1 else "")

        return re.sub(pattern, blank, self.text, flags=re.S)

    @property
    def names_api(self) -> bool:
        """Whether the file includes a header of the vendor's, or names the namespace."""
        found = _INCLUDE.findall(self.text)
        return any(name.startswith("tcim/") or _header(name) for name in found) or "tcim::" in self.code

    def place(self, offset: int) -> Place:
        """The line of an offset."""
        return Place(self.shown, self.code.count("\n", 0, offset) + 1)

    # -- uses

    def uses(self) -> Iterator[Use]:
        """Every header, class, function and member of the API, where it stands."""
        for found in _INCLUDE.finditer(self.text):
            header = _header(found[1])
            if header:
                yield Use(CPP[header], header, self.place(found.start(1)))
        for found in re.finditer(r"\btcim::((?:\w+::)*\w+)", self.code):
            name = _qualified(found[1])
            if name:
                yield Use(CPP.get(name) or unknown(name), name, self.place(found.start()))
        types = self.types
        for found in re.finditer(r"(\w+|\)|\])\s*(?:\.|->)\s*([A-Z]\w+)\s*\(", self.code):
            name = self._member(types.get(found[1], ""), found[2])
            if name:
                yield Use(CPP[name], name, self.place(found.start(2)))

    @cached_property
    def types(self) -> dict[str, str]:
        """Classes of variables and members, by name."""
        found = {}
        classes = "|".join([*_TYPES, *_NESTED, *_IMAGES, "HalDevice"])
        pattern = rf"\b(?:tcim::)?(?:Module::|dev_ctrl::|ImageOps::)?({classes})\s*[&*]?\s+(\w+)\s*[;,)=({{]"
        for kind, name in re.findall(pattern, self.code):
            found[name] = _NESTED.get(kind, _qualified_class(kind))
        for kinds, names in re.findall(rf"\b(?:tcim::)({classes})\s+(\w+(?:\s*,\s*\w+)+)\s*;", self.code):
            found |= {name.strip(): kinds for name in names.split(",")}
        return found

    def _member(self, kind: str, method: str) -> str:
        if f"{kind}::{method}" in CPP:
            return f"{kind}::{method}"
        return _OWNER[method] if not kind and _METHODS[method] == 1 and method not in ("Size", "Data") else ""

    # -- risks

    def risks(self) -> list[Risk]:
        """All risky patterns, each line once for a code."""
        found: dict[tuple[str, int], Risk] = {}
        for each in (*self._in_token_loops(), *self._unsynced(), *self._reinterpreted()):
            found.setdefault((each.code, each.place.line), each)
        return sorted(found.values(), key=lambda each: (each.place.line, each.code))

    @cached_property
    def functions(self) -> dict[str, tuple[int, int]]:
        """Bodies of functions: offsets inside the braces."""
        found = {}
        for each in re.finditer(r"\b(\w+)\s*\(([^;{}]*)\)\s*(?:const|noexcept|override|\s)*(?::[^;{}]*)?\{", self.code):
            if each[1] not in _NOT_FUNCTIONS:
                found[each[1]] = (each.end(), self._closing(each.end() - 1))
        for each in re.finditer(r"\b(\w+)\s*=\s*\[[^\]]*\]\s*(?:\([^)]*\))?[^{};=]*\{", self.code):  # lambdas
            found[each[1]] = (each.end(), self._closing(each.end() - 1))
        return found

    @cached_property
    def loops(self) -> list[tuple[int, int]]:
        """Bodies of loops."""
        found = []
        for each in re.finditer(r"\b(?:for|while)\s*\(|\bdo\s*\{", self.code):
            start = each.end() - 1
            if self.code[start] == "(":
                start = self._closing(start) + 1
                start += len(self.code[start:]) - len(self.code[start:].lstrip())
            if self.code[start : start + 1] == "{":
                found.append((start + 1, self._closing(start)))
            elif self.code[start : start + 1] != ";":
                found.append((start, (self.code + ";").index(";", start)))
        return found

    def _closing(self, start: int) -> int:
        """The offset of the bracket that closes the one at `start`; the end of the text if none does."""
        pairs = {"(": ")", "{": "}"}
        opening, depth = self.code[start], 0
        for offset in range(start, len(self.code)):
            if self.code[offset] == opening:
                depth += 1
            elif self.code[offset] == pairs[opening]:
                depth -= 1
                if depth == 0:
                    return offset
        return len(self.code)

    def _runs(self, start: int, end: int, depth: int = 4) -> bool:
        """Whether code calls Run of a module, itself or through functions of the file."""
        if re.search(r"(?:\.|->)\s*Run\s*\(", self.code[start:end]):
            return True
        return depth > 0 and any(self._runs(*self.functions[name], depth - 1) for name in self._called(start, end))

    def _called(self, start: int, end: int) -> list[str]:
        """Functions of the file that code calls."""
        return sorted(set(re.findall(r"(?<![.\w>:])(\w+)\s*\(", self.code[start:end])) & self.functions.keys())

    def _token_loops(self) -> Iterator[tuple[int, int]]:
        """Innermost loops that set two inputs or more and run the module, and the functions that do it for them."""
        running = [loop for loop in self.loops if self._runs(*loop)]
        for loop in running:
            bodies, names = [loop], set[str]()
            for body in bodies:
                for name in self._called(*body):
                    if name not in names and self._runs(*self.functions[name]):
                        names.add(name)
                        bodies.append(self.functions[name])
            inner = any(start < other[0] and other[1] < end for start, end in bodies for other in running)
            given = sum(len(re.findall(r"(?:\.|->)\s*SetInput\s*\(", self.code[slice(*body)])) for body in bodies)
            if not inner and given > 1:
                yield from bodies

    def _in_token_loops(self) -> Iterator[Risk]:
        making = r"\b(Create(?:Host|Device)(?:Tensor|Buffer)|LoadModel|LoadFromFile)\s*\("
        for start, end in self._token_loops():
            for found in re.finditer(making, self.code[start:end]):
                at = start + found.end() - 1
                inside = self.code[at + 1 : self._closing(at)]
                wraps = found[1] in ("CreateHostTensor", "CreateHostBuffer") and _arguments(inside) > 1
                if not wraps:
                    yield risk("P-102", self.place(start + found.start()), f"{found[1]} in a loop that runs a module.")
            for found in re.finditer(r"GetOutput\s*\([^;]*?\)\s*\.\s*(AsType|Clone)\s*\(", self.code[start:end]):
                text = f"{found[1]} makes another copy of a whole output in a loop that runs a module."
                yield risk("P-101", self.place(start + found.start()), text)
            fetched: set[str] = set()
            reading = r"(\w+)(?:\.|->)(?:(Run)\s*\(|GetOutput\s*\(([^,;]*?)\)\s*[.;,)])"
            for found in re.finditer(reading, self.code[start:end]):
                key = f"{found[1]} {self.text[start + found.start(3) : start + found.end(3)]}" if found[3] else ""
                if found[2]:
                    fetched.clear()
                elif key in fetched:
                    yield risk("P-101", self.place(start + found.start()), "An output is fetched again after one run.")
                fetched.add(key)

    def _unsynced(self) -> Iterator[Risk]:
        """Reads and writes after Run() of the same module in the order of the text of a function."""
        for start, end in self.functions.values():
            pending: dict[str, int] = {}
            for found in re.finditer(r"(\w+)(?:\.|->)(Run|Sync|GetOutput|SetInput)\s*\(", self.code[start:end]):
                at = start + found.end() - 1
                arguments = self.code[at + 1 : self._closing(at)].strip()
                if found[2] == "Sync" or (found[2] == "Run" and arguments and not arguments.startswith("false")):
                    pending.clear()
                elif found[2] == "Run":
                    pending[found[1]] = self.place(at).line
                elif found[1] in pending:
                    what = "is read" if found[2] == "GetOutput" else "is written"
                    text = f"{found[1]} {what} after Run() in line {pending[found[1]]}, with no Sync() between."
                    del pending[found[1]]
                    yield risk("P-201", self.place(at), text)

    def _reinterpreted(self) -> Iterator[Risk]:
        """Outputs, which are FLOAT16 unless converted, read as another type."""
        outputs = dict.fromkeys(re.findall(r"\b(\w+)\s*=\s*[\w.>()-]+?GetOutput\s*\([^;,]*?\)\s*;", self.code))
        kinds = r"(?:const\s+)?(float|int8_t|uint8_t|int32_t|double)\s*\*\s*"
        cast = rf"(?:(?:static|reinterpret)_cast\s*<\s*{kinds}>\s*\(\s*|\(\s*{kinds}\)\s*)"
        for found in re.finditer(cast + r"((\w+)[^;]*?)\.\s*Data\s*\(", self.code):
            direct = "GetOutput" in found[3] and not re.search(r"AsType|CastTo", found[3])
            if direct or (found[4] in outputs and found[3].strip() == found[4]):
                text = f"An output is read as {found[1] or found[2]}; outputs are FLOAT16 unless they are converted."
                yield risk("P-301", self.place(found.start()), text)


def _qualified_class(kind: str) -> str:
    namespace = "dev_ctrl::" if kind == "HalDevice" else "ImageOps::" if kind in _IMAGES else ""
    return namespace + kind


def _header(name: str) -> str:
    """The table's name of an included header, or ""."""
    return next((known for known in _HEADERS if name.endswith(known) or (known[-1] == "/" and known in name)), "")


def _qualified(name: str) -> str:
    """The table's name of what stands behind `tcim::`; "" for what has no status of its own."""
    parts = name.split("::")
    if parts[0] in _NESTED:
        parts.insert(0, "Module")
    for length in range(len(parts), 0, -1):
        known = "::".join(parts[:length])
        if known in CPP:
            # Enumerators and constants have the status of their type.
            return known if length == len(parts) or _ENUMERATORS.match(parts[-1]) or length < 2 else "::".join(parts)
    return "" if _ENUMERATORS.match(parts[-1]) or parts in (["dev_ctrl"], ["ImageOps"]) else name


def _arguments(text: str) -> int:
    """The number of arguments between brackets."""
    depth, count = 0, 1 if text.strip() else 0
    for character in text:
        depth += (character in "([{<") - (character in ")]}>")
        count += character == "," and depth == 0
    return count
