"""A package folder: written beside its place and moved in when complete."""

from __future__ import annotations

import errno
import filecmp
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tcim_lite.hmm import read

from .errors import CompileError

_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json")  # any of them makes a tokenizer
_COPIED = (
    *_TOKENIZER,
    "tokenizer_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "config.json",
    "generation_config.json",
    "chat_template.jinja",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "chat_template.json",
    "processor_config.json",
)
# Where the embedding is, without suffix, by its role in a speculative pair. The vendor's build writes the first name of
# a role, and its speculative demo opens the second by default.
EMBEDDING = Path("hmquant/quant_embedding")
ROLE_EMBEDDINGS = {
    role: (EMBEDDING.with_name(f"{EMBEDDING.name}_{role}"), role / EMBEDDING) for role in ("draft", "target")
}
EMBEDDING_SUFFIXES = (".bin", ".pt")
TOKENIZER_DIR = Path("tokenizer")
HF_CONFIG_DIR = EMBEDDING.with_name("hf_config")  # where some programs of the vendor look for the same files
LAYER_TABLE = EMBEDDING.with_name("per_layer_input_embedding")  # without suffix
_PREFILL = re.compile(r"_prefill(_part0)?\.hmms?$")
# Of a disk, of the user, and of the process (`ulimit -f`).
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def vision_sizes(model: str) -> Path:
    """Where programs for a model find the sizes of the images that its vision graphs are for."""
    return EMBEDDING.with_name(f"{model}_visual_buckets.json")


def files_in(folder: Path) -> tuple[Path, ...]:
    """Returns all files under a folder, from there, sorted."""
    return tuple(sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()))


@contextmanager
def staged_package(output: Path, owned: re.Pattern[str], *, of_a_network: bool = False) -> Iterator[Path]:
    """Yields an empty folder on the same disk; on success its files replace those of the same name in `output`.

    Other files in `output` stay, except what an earlier compilation left there and this one did not write again, which
    would not fit: embedding and tokenizer files, and those directly in `output` whose name `owned` matches. A network
    has no embedding and no tokenizer, so those there are of a language model whose vision tower it may be. On failure
    `output` is as it was.

    Raises:
        CompileError: `output` cannot be written, its disk is full, or it holds what this package would spoil.
    """
    try:
        created = not output.exists()
        output.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".tcim-compile-", dir=output))
    except (FileExistsError, NotADirectoryError):
        raise CompileError(f"cannot write to {output}: there is a file or a broken link; -o takes a folder") from None
    except OSError as error:
        raise CompileError(f"cannot write to {output}: {error.strerror}") from error
    try:
        yield staging
        files = files_in(staging)
        _check_places(output, files)
        _check_foreign(output, staging)
        if not of_a_network:
            _check_embedding(output, staging, owned)
        graphs = (Path(path.name) for path in output.iterdir() if path.is_file() and owned.fullmatch(path.name))
        of_language = () if of_a_network else (*_embeddings_in(output), *_tokenizer_files_in(output))
        for stale in (*of_language, *graphs):
            if stale not in files:
                (output / stale).unlink(missing_ok=True)
        # Weights first: a .hmm never stands beside a .hmw it has not met.
        for file in sorted(files, key=lambda path: path.suffix != ".hmw"):
            (output / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staging / file, output / file)
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        raise CompileError(
            f"cannot write to {output}: {error.strerror}; free some space there, or write elsewhere"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if created and not any(output.iterdir()):
            output.rmdir()


def _embeddings_in(output: Path) -> Iterator[Path]:
    yield LAYER_TABLE.with_suffix(".pt")
    yield from (path.relative_to(output) for path in output.glob(str(vision_sizes("*"))))
    for suffix in EMBEDDING_SUFFIXES:
        yield EMBEDDING.with_suffix(suffix)
        for first, second in ROLE_EMBEDDINGS.values():
            if (output / first.with_suffix(suffix)).is_file():  # else the second may be a file of the vendor's
                yield from (first.with_suffix(suffix), second.with_suffix(suffix))


def _tokenizer_files_in(output: Path) -> Iterator[Path]:
    for name in _COPIED:
        if _is_second_name(output, name):
            yield Path(name)
        yield TOKENIZER_DIR / name
        if _is_second_name(output, HF_CONFIG_DIR / name):
            yield HF_CONFIG_DIR / name


def _is_second_name(output: Path, name: str | Path) -> bool:
    """Whether a file of `output` is the one in its tokenizer folder, so that a compilation put it there."""
    first, second = output / TOKENIZER_DIR / Path(name).name, output / name
    return first.is_file() and second.is_file() and filecmp.cmp(first, second, shallow=False)


def _check_foreign(output: Path, staging: Path) -> None:
    """Refuses to replace the configs of something else, such as those of another checkpoint."""
    for name in _COPIED:
        ours, theirs = staging / name, output / name
        if not (ours.is_file() and theirs.is_file()) or _is_second_name(output, name):
            continue
        if not filecmp.cmp(ours, theirs, shallow=False):
            raise CompileError(
                f"{theirs} is not of a package, and the checkpoint's {name} would replace it; write the package into a "
                "folder of its own, or move the file away"
            )


def checkpoint_of(graph: Path) -> str | None:
    """Returns the kind of the checkpoint that a graph was compiled from; None of a network, or of no graph at all."""
    try:
        message = json.loads(read(graph).custom_msg) if graph.is_file() else {}
    except (OSError, ValueError):
        return None
    # In that of a network, a key is the name of an input, which has an object.
    found = message.get("model_type") if isinstance(message, dict) else None
    return found if isinstance(found, str) else None


def _check_embedding(output: Path, staging: Path, owned: re.Pattern[str]) -> None:
    """Refuses to replace the embedding of another package: its graphs would run on with the rows of this one."""
    table = EMBEDDING.with_suffix(".bin")
    if not (output / table).is_file():
        return
    others = {name for path in output.iterdir() if _PREFILL.search(name := path.name) and not owned.fullmatch(name)}
    others -= {path.name for path in staging.iterdir()}
    others = {name for name in others if checkpoint_of(output / name) is not None}
    same = (staging / table).is_file() and (not others or filecmp.cmp(staging / table, output / table, shallow=False))
    if others and not same:
        raise CompileError(
            f"{output} holds another package, with {min(others)}, whose embedding, {table}, is not that of this one; "
            "write the package into a folder of its own"
        )


def _check_places(output: Path, files: Iterable[Path]) -> None:
    """Refuses before the first file is moved what would stop the move half-way."""
    for file in files:
        if (output / file).is_dir():
            raise CompileError(f"cannot write {output / file}: there is a folder of that name; move it away")
        for folder in (output / parent for parent in file.parents):
            if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK)):
                raise CompileError(f"cannot write into {folder}: it is no folder, or not writable; move it away")


def host_files_in(checkpoint: Path) -> dict[str, Path]:
    """Returns what a checkpoint folder has of tokenizer, chat template and configs."""
    return {name: checkpoint / name for name in _COPIED if (checkpoint / name).is_file()}


def write_host_files(files: Mapping[str, Path | bytes], package: Path) -> bool:
    """Writes tokenizer, chat template and configs into a package; returns whether there was a tokenizer.

    They lie in its tokenizer folder, in the root for other tools, which take a model's folder to be one that has
    config.json and the tokenizer, and where programs of the vendor look for them.

    Args:
        files: By name: to copy, or what to write.
        package: Folder to write into.
    """
    target = package / TOKENIZER_DIR
    for folder in (target, package / HF_CONFIG_DIR):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if isinstance(content, Path):
            shutil.copyfile(content, target / name)
        else:
            (target / name).write_bytes(content)
        for second in (package, package / HF_CONFIG_DIR):
            link_or_copy(target / name, second / name)
    return any(name in files for name in _TOKENIZER)


def link_or_copy(path: Path, other: Path) -> None:
    """Gives a file a second name, at no cost where the file system can."""
    try:
        os.link(path, other)
    except OSError:
        shutil.copyfile(path, other)
