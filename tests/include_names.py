"""What the text of a C++ source says that it uses, and the headers that declare it.

Quicker than a compiler by a factor of a hundred, and less: it knows names of the standard library that stand behind
`std::`, and types, constants and functions of ours, but neither members nor what the C library declares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

# Headers of the standard library, and the names that are ours to use once one of them is included. Where several have a
# name, each is enough.
_NAMES = {
    "algorithm": "adjacent_find all_of any_of clamp copy copy_n count count_if equal fill fill_n find find_if for_each "
    "is_permutation max max_element min min_element none_of partial_sort ranges replace sort stable_sort transform "
    "upper_bound",
    "array": "array get to_array",
    "atomic": "atomic memory_order_acq_rel memory_order_acquire memory_order_relaxed memory_order_release "
    "memory_order_seq_cst",
    "barrier": "barrier",
    "bit": "bit_cast endian rotl rotr",
    "cctype": "isalnum",
    "cfenv": "fegetenv fenv_t fesetenv",
    "charconv": "errc from_chars to_chars",
    "chrono": "chrono chrono_literals duration duration_cast microseconds milliseconds nanoseconds steady_clock "
    "system_clock",
    "cmath": "ceil fabs fma fmaf fmax ilogb isfinite isnan ldexp llround nearbyint round sqrt",
    "concepts": "integral same_as",
    "condition_variable": "condition_variable condition_variable_any",
    "cstddef": "byte to_integer",
    "cstdint": "uintptr_t",
    "cstdio": "fprintf snprintf",
    "cstdlib": "aligned_alloc atexit atof free getenv",
    "cstring": "memcmp memcpy memset strerror strlen",
    "ctime": "time",
    "deque": "deque erase erase_if",
    "exception": "current_exception exception exception_ptr rethrow_exception uncaught_exceptions",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream",
    "functional": "equal_to function greater hash less multiplies",
    "initializer_list": "initializer_list",
    "iterator": "istreambuf_iterator prev",
    "limits": "numeric_limits",
    "locale": "locale",
    "map": "erase_if map multimap",
    "memory": "make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag try_to_lock unique_lock",
    "new": "bad_alloc",
    "numeric": "accumulate iota",
    "optional": "nullopt optional",
    "set": "erase_if set",
    "shared_mutex": "shared_mutex try_to_lock unique_lock",
    "span": "as_bytes dynamic_extent span",
    "sstream": "istringstream ostringstream",
    "stdexcept": "runtime_error",
    "string": "erase getline string to_string",
    "string_view": "string_view",
    "system_error": "errc error_code generic_category system_error",
    "thread": "sleep_for sleep_until this_thread thread",
    "tuple": "apply get tuple",
    "type_traits": "invoke_result_t is_integral_v is_same_v is_signed_v is_trivially_copyable_v "
    "is_trivially_destructible_v is_void_v make_unsigned_t remove_cvref_t type_identity",
    "unordered_map": "erase_if unordered_map",
    "unordered_set": "erase_if unordered_set",
    "utility": "cmp_greater_equal cmp_less_equal exchange forward get in_range move pair swap",
    "variant": "get get_if holds_alternative variant visit",
    "vector": "erase erase_if vector",
}
# Names that containers, streams or headers of others declare.
_ANYWHERE = {"begin", "end", "size", "ios", "ostream", "is_regular_file", "_literals"}
_HEADERS: dict[str, set[str]] = {}
for _header, _text in _NAMES.items():
    for _name in _text.split():
        _HEADERS.setdefault(_name, set()).add(_header)
_NO_TYPE = r"(?:case|const|else|explicit|friend|inline|new|private|public|return|static|throw|virtual)\b"
_TYPE = re.compile(
    r"^(?:struct|class|enum class|enum|union)(?: alignas\(\w+\)| __attribute__\S+| [A-Z_]+)? (\w+)\b(?!;)", re.MULTILINE
)
_OTHER = re.compile(r"^(?:using|concept|(?:inline )?constexpr [\w:<> ]+) (\w+)(?= =)", re.MULTILINE)
# With its parenthesis: a word that is no call is something else.
_FUNCTION = re.compile(
    r"^(?:\[\[\w+\]\] )?(?!namespace|using|static_assert|return|friend|struct|class)\w[\w:<>,&*\[\] ]* [&*]*(\w+\()",
    re.MULTILINE,
)


def _without_texts(source: str) -> str:
    """Without comments, texts and the name of our namespace; what it includes stays."""
    return re.sub(r'//.*|(?<!#include )"(?:\\.|[^"\\\n])*"|\btcim_lite::', "", source)


class Sources:
    """C++ files, and what each of them sees.

    Args:
        folders: What paths of #include are relative to.
        files: All that there are. What kernels declare is for kernels alone.
    """

    def __init__(self, folders: list[Path], files: list[Path]):
        self.files, self._folders = set(files), folders
        self._texts = {file: _without_texts(file.read_text(encoding="utf-8")) for file in files}
        self._homes: dict[str, set[Path]] = {}
        for file, text in self._texts.items():
            if "kernels" not in file.parts:
                for name in {*_TYPE.findall(text), *_OTHER.findall(text), *_FUNCTION.findall(text)}:
                    self._homes.setdefault(name, set()).add(file)

    def seen(self, file: Path) -> tuple[set[Path], set[str]]:
        """Files of ours that `file` includes, itself among them, and headers of others, through any number of files."""
        ours, others, left = {file}, set(), [file]
        while left:
            including = left.pop()
            for quoted, name in re.findall(r'^#include (?:"(.*)"|<(.*)>)', self._texts[including], re.MULTILINE):
                if name:
                    others.add(name)
                for path in (base / quoted for base in (including.parent, *self._folders)) if quoted else ():
                    if path in self.files:
                        left += {path} - ours
                        ours.add(path)
        return ours, others

    def missing(self, file: Path) -> Iterator[str]:
        """Names that `file` uses and that nothing it includes declares, with what would."""
        text, (ours, others) = self._texts[file], self.seen(file)
        for name in sorted(set(re.findall(r"\bstd::(\w+)", text)) - _ANYWHERE):
            if name not in _HEADERS:
                yield f"std::{name}, of which include_names.py does not know the header"
            elif not _HEADERS[name] & others:
                yield f"std::{name}: <{'>, <'.join(sorted(_HEADERS[name]))}>"
        used = re.findall(r"(?<![\w:.>])(\w+)(\(?)", text)
        for name in sorted(self._homes.keys() & {word + end for word, call in used for end in {"", call}}):
            if (homes := self._homes[name]) & ours:
                continue
            # What else is declared by that name: a type without its definition or in a class, a parameter, a constant.
            inside = re.compile(rf"\b(?!{_NO_TYPE})\w+(?:>|&|\*)* [&*]*{name.rstrip('(')}\b")
            if any(inside.search(self._texts[one]) for one in ours):
                continue
            if headers := sorted(home.name for home in homes if home.suffix == ".h"):
                yield f"{name}: {', '.join(headers)}"
