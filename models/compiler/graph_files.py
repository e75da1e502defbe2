"""The `.hmm` and `.hmms` files of a package."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcim_lite.hmm import Graph, Sibling, Split, WeightData, WeightEntry, read, write_model

from ..blocks.shards import shards_of
from ..common.errors import CompileError
from ..common.profiles import DEFAULT_ACTIVATIONS
from ..weights.used_weights import used_weights
from .graph import build_graph, split_of
from .graph_inputs import mask_ports
from .graph_specs import GraphSpec
from .mtp_graph import build_mtp_graph
from .prepare import PreparedModel

# Behind `_visual`: tokens of a gear, what a token is made of, or the size of images.
_OF_VISION = r"(_m\d+|_\d+x|(_\d+)(x\d+){1,2})"


def owned_files(name: str, networks: Sequence[str] = (), others: Sequence[str] = ()) -> re.Pattern[str]:
    """Returns what matches the name of every graph and weights file that a package called `name` may have.

    `networks`, and language models beside the package's own, are what only packages of this kind have: in others a file
    of such a name is the user's. `others` are whole names, of packages whose files have fixed ones.
    """
    stage = "_(prefill|decode|verify)"
    # NAME_draft_prefill.hmm and NAME_encoder.hmm are how earlier versions called NAME_prefill_draft.hmm and
    # NAME_encode.hmm.
    graphs = (
        rf"(_draft)?{stage}(_part\d+)?\.hmms?|{stage}_draft\.hmms?|{stage}_mtp\.hmms?|_visual{_OF_VISION}?\.hmm|"
        r"_encode(r|_keys_first)?\.hmm|_audio\.hmm"
    )
    graphs = "|".join([graphs, *(rf"_{network}(_prefill|_decode)?\.hmm" for network in networks)])
    parts = "|".join(["draft|visual|encoder?|audio", *networks])
    named = rf"{re.escape(name)}({graphs}|(_({parts}))?\.hmw)"
    return re.compile("|".join([named, *map(re.escape, others)]))


def check_neighbours(output: Path, name: str) -> None:
    """Refuses to write beside a package whose files would be taken for this one's, or this one's for that one's.

    NAME_encode.hmw has the weights of NAME's encoder, or all weights of a package NAME_encode.

    Raises:
        CompileError: `output` has such a package.
    """
    files = {path.name for path in output.iterdir()} if output.is_dir() else set()
    for end in ("_visual", "_encode", "_encoder", "_audio"):
        other, whole = name + end, name.removesuffix(end)
        is_whole = files & {f"{other}_{stage}.hmm" for stage in ("prefill", "decode")}
        is_part = whole != name and any(re.fullmatch(rf"{re.escape(name)}{_OF_VISION}?\.hmm", file) for file in files)
        if is_whole or is_part:
            raise CompileError(
                f"{output} holds a package {(other if is_whole else whole)!r}, which has files of the same names as a "
                f"package {name!r} may have; write to a folder of its own, or give another --name"
            )


@dataclass(frozen=True, slots=True)
class GraphFile:
    """A `.hmm`, or a `.hmms` of as many parts as devices.

    Attributes:
        name: Of the file.
        parts: A graph for each device, with the weight table of the `.hmw`.
        message: Its `custom_msg`.
        split: Of a `.hmms`, which inputs are cut and which whole.
    """

    name: str
    parts: Sequence[Graph]
    message: Mapping[str, Any]
    split: Split | None = None


def write_graph_files(
    folder: Path,
    files: Iterable[GraphFile],
    entries: Sequence[WeightEntry],
    sibling: Sibling,
    *,
    self_contained: bool,
) -> None:
    """Writes graphs beside the `.hmw` whose weights they use.

    Args:
        folder: Where the `.hmw` is.
        files: What to write.
        entries: The weights of the `.hmw`, in its order.
        sibling: How a graph names the `.hmw`.
        self_contained: Every graph holds the weights it uses; the `.hmw` is removed.
    """
    shared = folder / sibling.file
    stored: Sequence[WeightEntry | WeightData] = entries
    if self_contained:
        source = read(shared)
        stored = [WeightData(e.name, e.dtype, e.format, e.shape, source.weight_bytes(e)) for e in source.weights]
    named = None if self_contained else sibling
    for file in files:
        parts, used = used_weights(file.parts, stored)
        message = json.dumps(file.message)
        write_model(folder / file.name, parts, used, custom_msg=message, split=file.split, sibling=named)
    if self_contained:
        shared.unlink()


def write_graphs(folder: Path, model: PreparedModel, entries: Sequence[WeightEntry], sibling: Sibling) -> None:
    """Writes a file for every graph; a self-contained package loses its `.hmw`."""
    self_contained = model.options.self_contained
    write_graph_files(folder, _files(model, entries), entries, sibling, self_contained=self_contained)


def _files(model: PreparedModel, entries: Sequence[WeightEntry]) -> Iterator[GraphFile]:
    for spec in model.graphs:
        shards = model.shards if spec.ndevice > 1 else shards_of(model.config, 1)
        context = model.options.context
        if spec.mtp == "draft":
            parts = [build_mtp_graph(model.config, model.profile, entries, spec, context, shard) for shard in shards]
        else:
            own = (model.config, model.profile, entries, spec, context)
            parts = [build_graph(*own, shard, model.lora) for shard in shards]
        split = split_of(parts[0]) if spec.ndevice > 1 else None
        yield GraphFile(model.graph_file(spec), parts, _custom_msg(model, spec), split)


def _verifies(spec: GraphSpec) -> bool:
    return spec.name == "verify" or spec.each_state or (spec.mtp == "assisted" and spec.name == "decode")


def _custom_msg(model: PreparedModel, spec: GraphSpec) -> dict[str, Any]:
    """The keys of the vendor's builds, then ours."""
    options, profile = model.options, model.profile
    message = {
        # The vendor compiles verify from prefill with another fill length.
        "prefill_length": spec.tokens if _verifies(spec) else options.prefill_length,
        "batch": options.batch,
        "context_length": options.context,
        "flash_attention": True,
        "all_logits": spec.all_logits,
        "model_type": model.config.family.model_type,
        "quant": profile.quant,
        "head_quant": profile.head_quant,
        "embedding_dtype": profile.tensor_dtype,
        "hidden_size": model.config.hidden_size,
        "vocab_size": model.config.vocab_size,
    }
    if model.config.classes is not None:
        message["classes"] = model.config.classes
    if profile.activations != DEFAULT_ACTIVATIONS:
        message["activations"] = profile.activations
    if spec.mtp is not None:
        message["mtp"] = spec.mtp
    if spec.argmax:
        message["argmax"] = True
    if spec.hidden_states is not None:
        message["hidden_states"] = spec.has_norm or spec.hidden_states
    if spec.position_ids:
        message["position_ids"] = True
    if mask_ports(model.config, spec):  # how long the window is cannot be told from the inputs
        message["sliding_window"] = model.config.mask_window or options.context
    if spec.layers is not None:
        message |= {"pipeline": options.pipeline, "first_block": spec.layers.start, "blocks": len(spec.layers)}
    if spec.ndevice > 1:
        message["ndevice"] = spec.ndevice
    return message
