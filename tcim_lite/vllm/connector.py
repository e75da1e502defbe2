"""Prefix reuse through vLLM's KV connector: a prompt that begins like one before it takes those rows, copied.

    --kv-transfer-config '{"kv_connector": "SlotConnector", "kv_connector_module_path": "tcim_lite.vllm.connector",
                           "kv_role": "kv_both", "kv_connector_extra_config": {"prefix_cache_mb": 256}}'

vLLM's own prefix caching shares blocks, and a block is a slot, which has one owner. The connector's interface asks
another question: how many tokens of this prompt can you supply? The scheduler's half answers from a mirror of what
every slot holds at the start of a step. The worker's half then copies rows from slot to slot, or from host memory, into
the slot that vLLM chose, before the step's first run. It compares the tokens: a wrong mirror is an error, never an
answer made from other rows.

Both halves do what `tcim-lite serve` does (`engine/prefixes.py`), but that vLLM asks once, when a request is admitted.
So of prompts that begin alike and come together, each is prefilled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from tcim_lite.llm import Package
from tcim_lite.llm.engine.prefixes import HostRows, Seat, choose_seat, take_seat
from tcim_lite.llm.engine.slots import Slots
from tcim_lite.llm.prompt import common_prefix

from .adapters import key_of
from .case import Case
from .shape import Shape


@dataclass(frozen=True)
class Admission:
    """A request that begins in this step.

    Attributes:
        name: Request id.
        seat: Its slot, and where it finds how many tokens.
        prompt: The tokens found, [seat.matched].
        kept: Rows of the slot that hold what was there before it, as far as the mirror knows.
    """

    name: str
    seat: Seat
    prompt: list[int]
    kept: int


@dataclass
class Admissions(KVConnectorMetadata):
    """From the scheduler's half to the worker's in every step: `reset` first, then the admissions in order."""

    admissions: list[Admission] = field(default_factory=list)
    reset: bool = False


class _Mirror:
    """`Slots` without a device: as much of one as `take_seat` and `HostRows` use."""

    carries = False  # the platform refuses it for packages with states

    def __init__(self, count: int, row_bytes: int):
        self.tokens: list[list[int]] = [[] for _ in range(count)]
        self.adapter_of: list[str | None] = [None] * count
        self.row_bytes = row_bytes

    def read_rows(self, slot: int) -> list[np.ndarray]:
        return [np.broadcast_to(np.uint8(0), (len(self.tokens[slot]) * self.row_bytes,))]  # counts as many, has one

    def assign(self, slot: int, adapter: str | None) -> None:
        if self.adapter_of[slot] != adapter:
            self.tokens[slot], self.adapter_of[slot] = [], adapter

    def write_rows(self, slot: int, tokens: Sequence[int], rows: Sequence[np.ndarray]) -> None:
        self.tokens[slot] = list(tokens)

    def copy_rows(self, source: int, target: int, count: int) -> None:
        self.tokens[target] = self.tokens[source][:count]
        self.adapter_of[target] = self.adapter_of[source]


class _Unmoved:
    """`HostRows` whose order of use stays: a question may be asked many times, the rows are used once."""

    def __init__(self, host: HostRows):
        self._host = host

    def __len__(self) -> int:
        return len(self._host)

    def find(self, prompt: Sequence[int], adapter: str | None = None) -> tuple[int, list[np.ndarray]]:
        return self._host.longest(prompt, adapter), []


class SlotConnector(KVConnectorBase_V1):
    """Option of `kv_connector_extra_config`: `prefix_cache_mb`, MiB of host memory for rows of slots that are taken; 0.

    Raises:
        ValueError: A negative size.
    """

    _cache_hit_source = CacheHitSource.DEVICE

    @property
    def requires_kv_delivery(self) -> bool:
        """Nothing waits for rows: without them a prompt is prefilled."""
        return False

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any):
        super().__init__(vllm_config, role, kv_cache_config)
        self._budget = int(self._kv_transfer_config.get_from_extra_config("prefix_cache_mb", 0)) << 20
        self._host = HostRows(self._budget)
        self._shape = Shape.read(Package.open(Case.read(vllm_config.model_config.model).folder))
        self._slots: Any = _Mirror(self._shape.slots, self._shape.row_bytes)
        self._running: dict[int, Any] = {}  # request of each slot
        self._salts: list[str | None] = [None] * self._shape.slots  # of what each slot holds
        self._found: dict[str, Seat] = {}  # of requests that are about to be admitted
        self._idle = list(range(self._shape.slots))  # the slot that was given away or given back last is the last
        self._pool: Any = None
        self._admitted: set[int] = set()  # slots whose rows come with this step
        self._step = Admissions()

    # The scheduler's half.

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        """The pool gives the block that was freed last, so the slot with the newest rows would be overwritten first."""
        self._pool = gpu_block_pool

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """The most tokens of the prompt that a slot or the host has; its last token is never among them.

        The slot that saves the most work becomes the pool's next.
        """
        self._found.pop(request.request_id, None)
        tokens = _text_of(request)
        held = {block.block_id - 1 for block in self._pool.free_block_queue.get_all_free_blocks()}
        free = [slot for slot in self._idle if slot in held]
        if num_computed_tokens or not free:
            return 0, False
        self._refresh()
        reads, adapter = bool(tokens) and not request.skip_reading_prefix_cache, key_of(request.lora_request)
        if reads:
            seen = _Mirror(len(self._salts), self._shape.row_bytes)
            for slot, salt in enumerate(self._salts):
                if salt == request.cache_salt:
                    seen.tokens[slot], seen.adapter_of[slot] = self._slots.tokens[slot], self._slots.adapter_of[slot]
            host = _Unmoved(self._host if request.cache_salt is None else HostRows(0))
            seat = choose_seat(tokens, seen, free, host, adapter)  # type: ignore[arg-type]
        else:
            seat = Seat(free[0], 0, free[0], adapter=adapter)
        block = self._pool.blocks[seat.slot + 1]
        self._pool.free_block_queue.remove(block)
        self._pool.free_block_queue.prepend_n([block])
        self._found[request.request_id] = seat
        return seat.matched, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The request has its slot: what that held goes to the host, and the rows it was promised come."""
        slot = blocks.get_block_ids()[0][0] - 1
        found, adapter = self._found.pop(request.request_id, None), key_of(request.lora_request)
        seat = Seat(slot, 0, slot, adapter=adapter)
        rows: Sequence[np.ndarray] = ()
        prompt = list(request.all_token_ids)[:num_external_tokens]
        if num_external_tokens and found is not None:
            if found.source is None:
                _, rows = self._host.find(prompt, adapter)  # is the most recently used now
            seat = Seat(slot, num_external_tokens, found.source, adapter=adapter)
        for before in [number for number, one in self._running.items() if one is request]:  # it was preempted
            self._forget(before)
        if slot in self._running:  # its owner was preempted
            self._forget(slot)
        if self._salts[slot] is not None:  # nobody else is to find these
            del self._slots.tokens[slot][seat.matched if seat.source == slot else 0 :]
        kept = len(self._slots.tokens[slot])
        take_seat(Seat(slot, seat.matched, seat.source, rows, adapter), prompt, self._slots, self._host)
        self._step.admissions.append(Admission(request.request_id, seat, prompt, kept))
        self._slots.tokens[slot] = []  # there when this step is over
        self._salts[slot] = request.cache_salt
        self._running[slot] = request
        self._used(slot)
        self._admitted.add(slot)

    def get_external_cache_hit_sources(self, request: Any, num_external_tokens: int) -> dict[CacheHitSource, int]:
        """The host, or a slot."""
        seats = [one.seat for one in self._step.admissions if one.name == request.request_id]
        on_host = bool(seats) and seats[-1].source is None
        where = CacheHitSource.HOST if on_host else CacheHitSource.DEVICE
        return {where: num_external_tokens} if num_external_tokens else {}

    def build_connector_meta(self, scheduler_output: Any) -> Admissions:
        """Ends the scheduler's half of a step."""
        step, self._step = self._step, Admissions()
        self._admitted.clear()
        return step

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        """The slot is free, and keeps its rows until it is given away."""
        self._found.pop(request.request_id, None)
        self._refresh()
        for slot in [slot for slot, one in self._running.items() if one is request]:
            del self._running[slot]
            self._used(slot)
        return False, None

    def reset_cache(self) -> bool:
        """Forgets all rows; those of running requests too, for others."""
        for slot in range(len(self._slots.tokens)):
            self._forget(slot)
        self._host = HostRows(self._budget)
        self._step.reset = True
        return True

    def _refresh(self) -> None:
        """What the slots of running requests hold; of a full one the last row may be lost to an idle run."""
        for slot, request in self._running.items():
            if slot not in self._admitted:
                count = min(request.num_computed_tokens, self._shape.context - 1)
                self._slots.tokens[slot] = _text_of(request)[:count]

    def _used(self, slot: int) -> None:
        self._idle.remove(slot)
        self._idle.append(slot)

    def _forget(self, slot: int) -> None:
        self._running.pop(slot, None)
        self._slots.tokens[slot] = []

    # The worker's half.

    def register_slots(self, slots: Slots) -> None:
        """Names the slots that the rows are in.

        Raises:
            ValueError: They are not those of the package's files.
        """
        if slots.row_bytes != self._shape.row_bytes:
            raise ValueError(f"a row has {slots.row_bytes} bytes, by the package's files {self._shape.row_bytes}")
        self._slots = slots

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Makes the slots of the step's admissions hold what they were promised.

        Raises:
            RuntimeError: The rows are not there.
        """
        step, slots = self._get_connector_metadata(), self._slots
        if step.reset:
            self._host = HostRows(self._budget)
        for admission in step.admissions:
            seat, prompt = admission.seat, admission.prompt
            if seat.source is None:
                count, rows = self._host.find(prompt, seat.adapter)
                seat = Seat(seat.slot, seat.matched, None, rows, seat.adapter)
            else:
                count = common_prefix(prompt, slots.tokens[seat.source])
                count *= slots.adapter_of[seat.source] == seat.adapter
            if count < seat.matched:
                where = "the host" if seat.source is None else f"slot {seat.source}"
                raise RuntimeError(
                    f"request {admission.name}: {seat.matched} rows of its prompt were to be in {where}, which has "
                    f"{count}; this is an error of the plugin: report it, and leave --kv-transfer-config out"
                )
            del slots.tokens[seat.slot][admission.kept :]
            take_seat(seat, prompt, slots, self._host)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Rows of all layers are there when `start_load_kv` returns."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Rows stay in their slot."""

    def wait_for_save(self) -> None:
        """Nothing is under way."""


def _text_of(request: Any) -> list[int]:
    """Tokens before the first image: behind it, equal tokens may stand for different ones."""
    if not request.prompt_token_ids:
        return []
    end = request.mm_features[0].mm_position.offset if request.mm_features else None
    return list(request.all_token_ids[:end])
