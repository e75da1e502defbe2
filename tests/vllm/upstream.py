"""Runs tests of vLLM's own against a package.

    python tests/vllm/upstream.py [--source FOLDER|SDIST] [-k WORDS] [FILE...]

The tests come from the sdist of the pinned version, fetched with pip if none is named, checked against `sha256` of
upstream.toml, and unpacked outside this repository. They name models of the Hugging Face hub: a hub cache is made in
which each of these names is the demo checkpoint's package, and the hub is offline. upstream.toml says which files run
(`allow`), and which of their tests do not and why (`block`). A test that is not blocked has to pass.

Needs the environment of setup_env.sh, with pytest-asyncio, pytest-timeout and tblib.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CHECKPOINT = HERE.parents[1] / "examples" / "demo_checkpoint"
_ADAPTER_OPTIONS = {"--enable-lora": 1, "--lora-modules": 2, "--max-lora-rank": 2, "--max-cpu-loras": 2}  # and values


def rules() -> dict[str, Any]:
    import tomllib

    return tomllib.loads((HERE / "upstream.toml").read_text())


# As a plugin of pytest, in the process that `main` starts.


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Prepares what files of tests import, or do when imported."""
    from huggingface_hub import snapshot_download
    from vllm.model_executor.model_loader import weight_utils

    # In place of weights without a tokenizer the whole package, which lies in the hub cache.
    weight_utils.download_weights_from_hf = lambda name, **options: snapshot_download(name)
    # One parses JSON of 2,000 levels; before Python 3.13 the limit is 1,000.
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 10_000))
    yield
    sys.setrecursionlimit(limit)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leaves out what is blocked, and counts it."""
    blocks, kept, out = rules()["block"], [], []
    counts: collections.Counter[str] = collections.Counter()
    unused = set(range(len(blocks)))
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        found = next((i for i, block in enumerate(blocks) if any(re.search(p, name) for p in block["tests"])), None)
        (kept if found is None else out).append(item)
        if found is not None:
            counts[blocks[found]["reason"]] += 1
            unused.discard(found)
    config.hook.pytest_deselected(items=out)
    items[:] = kept
    config.stash["blocked"] = counts
    from tests.utils import RemoteVLLMServer

    from tests.conftest import VllmRunner

    plain = VllmRunner.__init__

    def without_block_size(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **{"block_size": None} | kwargs)  # its default is 16, and a block is a slot here

    VllmRunner.__init__ = without_block_size
    whole = RemoteVLLMServer.__init__

    def without_adapters(self: Any, model: str, arguments: list[str], **kwargs: Any) -> None:
        """Some servers load an adapter, which is refused here, though most of their tests do not ask for it."""
        kept, left = [], 0
        for argument in arguments:
            left = _ADAPTER_OPTIONS.get(argument, 0) or max(left - 1, 0)
            kept += [argument] * (left == 0)
        whole(self, model, kept, **kwargs)

    RemoteVLLMServer.__init__ = without_adapters
    RemoteVLLMServer._pre_download_model = lambda self, model, args: None  # there are no weights of torch to fetch


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    """What was left out, by reason."""
    for reason, count in config.stash.get("blocked", collections.Counter()).most_common():
        terminalreporter.write_line(f"blocked {count:4}: {reason}")


def find_tests(source: str | None, folder: Path) -> Path:
    """The folder that holds `tests` of the pinned version, unpacked into `folder` from an sdist where it has to be."""
    said = rules()
    if source and Path(source).is_dir():
        return Path(source)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"vllm-{said['version']}"
    if source is None and not (folder / f"{name}.tar.gz").is_file():
        download = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-d",
            str(folder),
        ]
        env = os.environ | {"VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": said["version"]}
        subprocess.run([*download, "--no-binary", "vllm", f"vllm=={said['version']}"], check=True, env=env)
    archive = Path(source) if source else folder / f"{name}.tar.gz"
    if (digest := hashlib.sha256(archive.read_bytes()).hexdigest()) != said["sha256"]:
        raise SystemExit(f"{archive}: SHA-256 is {digest}, expected {said['sha256']} of upstream.toml")
    with tarfile.open(archive) as file:
        # Not vllm/ beside it: that would be imported instead of what is installed.
        wanted = [
            m for m in file.getmembers() if re.match(rf"{name}/(tests/|examples/.*jinja|pyproject\.toml$)", m.name)
        ]
        file.extractall(folder, wanted, filter="data")
    return folder / name


def make_hub(folder: Path, names: list[str], bases: list[str], context: int) -> Path:
    """A hub cache in which every name is the demo checkpoint's package, with a context that all tests fit into.

    `bases` are those of `names` that are no chat models. Their tests ask questions without a chat template, after which
    the demo model ends at once with <|im_end|>; as with a base model that is a token like others; <|endoftext|> ends.
    """
    package = folder / "package"
    options = ["--batch", "4", "--prefill-length", "32", "--context-length", str(context), "--all-logits", "-q"]
    command = [sys.executable, "-P", "-m", "tcim_lite", "compile", str(CHECKPOINT), "-o", str(package)]
    subprocess.run([*command, *options], check=True)
    for file, key in (("config.json", "max_position_embeddings"), ("tokenizer_config.json", "model_max_length")):
        (package / file).write_text(json.dumps(json.loads((package / file).read_text()) | {key: context}))
    base = shutil.copytree(package, folder / "base")
    for file, key, value in (
        ("config.json", "eos_token_id", 0),
        ("generation_config.json", "eos_token_id", 0),
        ("tokenizer_config.json", "eos_token", "<|endoftext|>"),
    ):
        (base / file).write_text(json.dumps(json.loads((base / file).read_text()) | {key: value}))
    tokenizer = json.loads((base / "tokenizer.json").read_text())
    next(token for token in tokenizer["added_tokens"] if token["content"] == "<|im_end|>")["special"] = False
    (base / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in names:
        entry = folder / "hub" / f"models--{name.replace('/', '--')}"
        (entry / "refs").mkdir(parents=True)
        (entry / "refs" / "main").write_text("0" * 40)
        (entry / "snapshots").mkdir()
        (entry / "snapshots" / ("0" * 40)).symlink_to(base if name in bases else package)
    return folder / "hub"


def main() -> int:
    parser = argparse.ArgumentParser(description="Tests of vLLM's own against a package.")
    parser.add_argument("--source", help="a folder with vLLM's tests, or the sdist; by default pip fetches it")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "tcim_lite_vllm_tests")
    parser.add_argument("-k", default="", metavar="WORDS", help="as pytest's")
    parser.add_argument("files", nargs="*", help="files below `tests`; without any, the allow list")
    args, rest = parser.parse_known_args()
    said = rules()
    root = find_tests(args.source, args.cache)
    files = args.files or said["allow"]
    with tempfile.TemporaryDirectory(prefix="tcim_lite_hub") as folder:
        hub = make_hub(Path(folder), said["models"], said["bases"], said["context"])
        env = os.environ | {
            "VLLM_PLUGINS": "tcim_lite",
            "HF_HUB_CACHE": str(hub),
            "HF_HUB_OFFLINE": "1",
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # they start `vllm serve`
            "PYTHONPATH": str(HERE),
            "PYTHONSAFEPATH": "1",
        }
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "upstream",
            "-p",
            "no:cacheprovider",
            "-q",
            "-rfE",
            "--disable-warnings",
        ]
        limits = [
            "--timeout",
            str(said["seconds"]),
            "--rootdir",
            str(root),
            "-c",
            os.devnull,
            "-o",
            "asyncio_mode=auto",
            "-k",
            args.k,
        ]
        paths = [str(root / "tests" / file) for file in files]
        return subprocess.run([*pytest, *limits, *rest, *paths], cwd=root, env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
