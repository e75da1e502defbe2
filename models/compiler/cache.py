"""Packages that commands compile on the way: one in a cache folder for each checkpoint and set of options."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tcim_lite.hmm

from ..blocks.nets import nets_of
from ..checkpoints.checkpoint import Checkpoint, config_of
from ..checkpoints.gguf import is_gguf
from ..common.errors import CheckpointError, CompileError
from ..families import read_config
from ..weights.roles import MTP_JOIN
from .assistant import NOT_WITH_ASSISTANT, assistant_family
from .compile import compile_checkpoint
from .graph_specs import one_slot_for
from .options import CompileOptions
from .vision import has_tower


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/tcim-lite/packages`; `~/.cache` where the variable is unset or no absolute path."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "tcim-lite" / "packages"


def cached_package(
    checkpoint: Path,
    *,
    label: str | None = None,
    say: Callable[[str], None] = lambda line: None,
    progress: bool = False,
    **options: Any,
) -> Path:
    """The folder of a package of `checkpoint`, compiled where the cache has none.

    Another package is made when a file of the checkpoint, an option, or the compiler changes. Of several processes that
    want the same package one compiles, the others wait for it. A package has its name only when it is complete.

    Args:
        checkpoint: Hugging Face folder or GGUF file.
        label: How the folder's name begins; the checkpoint's name where there is none.
        say: Gets a line before something that takes long.
        progress: As in `compile_checkpoint`.
        options: Of `CompileOptions`.

    Raises:
        CompileError: As `compile_checkpoint`; the cache cannot be written; the checkpoint changed meanwhile.
    """
    root = cache_folder()
    wanted = CompileOptions(checkpoint=checkpoint, output=root, **options)
    state = _state(wanted)
    stem = re.sub(r"[^\w.-]+", "-", label or checkpoint.resolve().name)[:80]
    package = root / f"{stem}-{hashlib.sha256(state.encode()).hexdigest()[:16]}"
    if package.is_dir():
        return package
    with _locked(package, say):
        if package.is_dir():
            return package
        for left in root.glob(f".{package.name}.*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{package.name}.", dir=root))
        try:
            say(f"compiling {checkpoint} into {package}")
            compile_checkpoint(dataclasses.replace(wanted, output=staging / "package"), progress=progress)
            if _state(wanted) != state:
                raise CheckpointError(f"{checkpoint} changed while it was compiled; run the command again")
            (staging / "package").rename(package)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return package


def fitting(checkpoint: Path, options: Mapping[str, Any], draft: Path | None = None) -> dict[str, Any]:
    """Returns those of some default options that fit a checkpoint, and its draft if there is one.

    At most one of `mtp` and `verify_length` fits; with a draft, which brings a verify graph of its own, neither does.
    """
    from ..own_graphs import own_graphs_of  # uses parts of this package

    lacks = {"mtp", "vision"}
    try:
        if own_graphs_of(checkpoint) is not None:
            return {}
        if not is_gguf(checkpoint):
            raw = config_of(checkpoint)
            config = read_config(raw)
            if has_tower(checkpoint, raw, config):
                lacks.discard("vision")
            if one_slot_for(config):
                lacks.add("batch")
            layer = config.family.tensors.get(MTP_JOIN)
            if draft is None and layer is not None and layer.names[0] in Checkpoint(checkpoint):
                lacks.discard("mtp")
            if nets_of(config):
                lacks.add("verify_length")
        if draft is not None and assistant_family(draft) is not None:
            lacks.update(NOT_WITH_ASSISTANT)
    except CompileError:  # compiling it says what is wrong, without options that exclude each other
        lacks = {"vision"} if draft is None else {"vision", "mtp"}
    if draft is not None or "mtp" not in lacks:
        lacks.add("verify_length")
    return {name: value for name, value in options.items() if name not in lacks}


def _state(options: CompileOptions) -> str:
    """What a package depends on, as text; equal for equal results."""
    values = {name: str(value) for name, value in dataclasses.asdict(options).items() if name != "output"}
    sources = [path for path in (options.checkpoint, options.draft, options.lora) if path is not None]
    return json.dumps([values, [_files(path) for path in sources], _compiler()], sort_keys=True)


def _files(checkpoint: Path) -> list[tuple[str, int, int]]:
    """Path, size and time of the last change of each file. A copy that keeps the time of writing changes that too."""
    checkpoint = checkpoint.resolve()
    if checkpoint.is_dir():
        paths = [path for path in checkpoint.iterdir() if path.is_file()]
    else:  # GGUF files may come in parts
        stem = re.sub(r"-\d+-of-\d+$", "", checkpoint.stem)
        paths = [path for path in checkpoint.parent.iterdir() if path.is_file() and path.name.startswith(stem)]
    return sorted((str(path), (found := path.stat()).st_size, found.st_ctime_ns) for path in paths)


@functools.cache
def _compiler() -> str:
    """A digest of the compiler's sources: a version number stays the same while they are worked on."""
    digest = hashlib.sha256()
    for folder in (Path(__file__).parent.parent, Path(tcim_lite.hmm.__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@contextlib.contextmanager
def _locked(package: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Holds the lock of a package; it ends with the process, however that ends."""
    try:
        package.parent.mkdir(parents=True, exist_ok=True)
        # Never removed: another process may just have opened it.
        file = os.open(f"{package}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise CompileError(
            f"cannot write into the cache {package.parent}: {error.strerror}; set XDG_CACHE_HOME, or compile with "
            "`tcim-lite compile MODEL -o OUT` and give OUT"
        ) from None
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process compiles {package.name}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
