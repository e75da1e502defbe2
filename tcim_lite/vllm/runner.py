"""A scheduler's step over the slots of a package: block id - 1 is the slot.

vLLM hands a block of `max_model_len` tokens to one request and takes it back when the request ends or is preempted, so
a slot has one owner. A claim of tokens in a slot that its owner did not compute is refused: it would answer with the
rows of another request.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from vllm.sampling_params import SamplingType
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.sample.logits_processor import build_logitsprocs
from vllm.v1.sample.sampler import Sampler
from vllm.v1.structured_output.utils import apply_grammar_bitmask
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from tcim_lite.llm.engine.slots import Slots
from tcim_lite.llm.mixed_prompt import MixedPrompt
from tcim_lite.llm.sampling import greedy_token

from .adapters import LoadedAdapters, key_of
from .cuts import held_at, runs_to
from .images import SeenImages
from .prompt_logprobs import PromptLogprobs
from .top_tokens import TopTokens


class Runner:
    """Requests of vLLM, on `slots`.

    Args:
        slots: Used by nobody else.
        vllm_config: As `TcimPlatform.check_and_update_config` left it.
        connector: Worker side of a `SlotConnector`, where prompts take rows that are there already.
        adapters: Of requests; None if there are none.
        images: Of requests; None if the package sees none.
    """

    def __init__(
        self,
        slots: Slots,
        vllm_config: Any,
        connector: Any = None,
        adapters: LoadedAdapters | None = None,
        images: SeenImages | None = None,
    ):
        model = vllm_config.model_config
        self._slots, self._connector, self._adapters, self._images = slots, connector, adapters, images
        self._mixed: dict[str, MixedPrompt] = {}  # prompts with images
        self._owners: list[str | None] = [None] * len(slots)
        self._requests: dict[str, Any] = {}
        cpu, pools = torch.device("cpu"), model.runner_type == "pooling"
        self._batch = InputBatch(
            max_num_reqs=vllm_config.scheduler_config.max_num_seqs,
            max_model_len=model.max_model_len,
            max_num_batched_tokens=vllm_config.scheduler_config.max_num_batched_tokens,
            device=cpu,
            vocab_size=slots.vocab_size,
            block_sizes=[model.max_model_len],
            max_num_blocks_per_req=[1],
            logitsprocs=build_logitsprocs(vllm_config, cpu, False, pools, model.logits_processors or ()),
            logitsprocs_need_output_token_ids=True,
            is_pooling_model=pools,
        )
        self._sampler = Sampler(logprobs_mode=model.logprobs_mode)
        self._sampler.topk_topp_sampler = TopTokens(model.logprobs_mode)
        self._prompts = PromptLogprobs(self._sampler, model.logprobs_mode, slots.vocab_size)
        self._prompt_logprobs: dict[str, Any] = {}  # complete in this step
        self._step: Any = None
        self._sampled: list[bool] = []
        self._rows: list[np.ndarray] = []  # logits [V] of each request; of one in mid-prefill, nothing of use

    @property
    def adapters_in_use(self) -> set[str | None]:
        """Keys of the adapters of requests that have begun."""
        return {key_of(state.lora_request) for state in self._requests.values()}

    def update(self, step: Any) -> None:
        """Takes in what a `SchedulerOutput` says of requests that came, went on, and ended."""
        for name in step.finished_req_ids:
            self._release(name)
            self._requests.pop(name, None)
            self._mixed.pop(name, None)
            self._prompts.forget(name)
            self._batch.remove_request(name)
        for name in step.preempted_req_ids or ():
            self._release(name)
            self._prompts.restart(name)
            self._batch.remove_request(name)
        for new in step.scheduled_new_reqs:
            params = new.sampling_params
            generator = None
            if params is not None and params.sampling_type == SamplingType.RANDOM_SEED:
                generator = torch.Generator().manual_seed(params.seed)
            self._requests[new.req_id] = CachedRequestState(
                req_id=new.req_id,
                prompt_token_ids=new.prompt_token_ids,
                mm_features=new.mm_features,
                sampling_params=params,
                pooling_params=new.pooling_params,
                generator=generator,
                block_ids=new.block_ids,
                num_computed_tokens=new.num_computed_tokens,
                output_token_ids=[],
                lora_request=new.lora_request,
            )
            if new.lora_request is not None and self._adapters is not None:
                self._adapters.add(new.lora_request, self.adapters_in_use)
            if new.mm_features and self._images is not None:
                self._mixed[new.req_id] = self._images.prompt(new.prompt_token_ids, new.mm_features)
            if params is not None:
                self._prompts.start(new.req_id, params)
        cached = step.scheduled_cached_reqs
        for index, name in enumerate(cached.req_ids):
            state = self._requests[name]
            state.num_computed_tokens = cached.num_computed_tokens[index]
            if name in cached.resumed_req_ids:
                self._release(name)
                state.block_ids = cached.new_block_ids[index]
                if name in cached.all_token_ids:  # a token of a step under way at the preemption does not count
                    state.output_token_ids[:] = cached.all_token_ids[name][state.num_prompt_tokens :]
            if cached.new_token_ids:  # stages that do not sample learn of the tokens here
                tokens = cached.new_token_ids[index]
                known = state.num_prompt_tokens + len(state.output_token_ids)
                if (unknown := state.num_computed_tokens + len(tokens) - known) > 0:
                    state.output_token_ids.extend(tokens[-unknown:])
        for name in [name for name in self._batch.req_ids if name not in step.num_scheduled_tokens]:
            self._batch.remove_request(name)
        for name in step.num_scheduled_tokens:
            if name not in self._batch.req_id_to_index:
                self._batch.add_request(self._requests[name])
        self._batch.condense()
        self._batch.refresh_metadata()
        if self._connector is not None:
            self._take_rows(step.kv_connector_metadata)

    def run(self, step: Any) -> None:
        """Prefills what is not decoded, then decodes one token of all others: a run for each of their adapters.

        Raises:
            RuntimeError: The scheduler claims rows that the request did not compute in its slot.
            TcimError: A run failed; no slot of this step keeps its rows.
        """
        names = self._batch.req_ids
        self._step = step
        self._sampled = [False] * len(names)
        self._prompt_logprobs = {}
        self._rows = []
        decodes: dict[str | None, dict[int, tuple[int, int]]] = {}  # by adapter, then slot
        found: dict[int, np.ndarray] = {}  # logits, by place in the batch
        used = []
        try:
            for index, name in enumerate(names):
                state = self._requests[name]
                start, count = state.num_computed_tokens, step.num_scheduled_tokens[name]
                slot = self._slot(state, start)
                used.append(slot)
                known = state.prompt_token_ids + state.output_token_ids
                self._sampled[index] = start + count == len(known)
                if count == 1 and start >= state.num_prompt_tokens:
                    decodes.setdefault(key_of(state.lora_request), {})[slot] = (index, known[start])
                else:
                    found[index] = self._prefill(name, slot, known[: start + count])
            for group in decodes.values():
                rows = self._slots.decode({slot: token for slot, (_, token) in group.items()})
                for slot, (index, _) in group.items():  # the next run writes to the same memory
                    found[index] = rows[slot] if len(decodes) == 1 else rows[slot].copy()
        except BaseException:
            for slot in used:  # their last rows may be half written
                self._slots.tokens[slot] = []
            raise
        self._rows = [found[index] for index in range(len(names))]

    def _prefill(self, name: str, slot: int, tokens: list[int]) -> np.ndarray:
        """Makes the slot hold `tokens`, in chunks; logits [V] after the last, where no more is to come."""
        slots, prompt, mixed = self._slots, self._requests[name].prompt_token_ids, self._mixed.get(name)
        whole = len(prompt) if slots.carries else len(tokens)
        if mixed is not None:
            whole = min(whole, len(prompt))
        logits = np.zeros(slots.vocab_size, np.float16)
        cut = None if mixed is None else mixed.cut
        for start, end in runs_to(len(tokens), len(slots.tokens[slot]), whole, slots.chunk_length, cut):
            if start >= len(prompt) and (slots.carries or mixed is not None):  # an answer that is run again
                logits = slots.decode({slot: tokens[start]})[slot].copy()
                continue
            part = tokens[start:end] if mixed is None else mixed.keys[start:end]
            if name not in self._prompts or start >= len(prompt):
                logits = slots.prefill(slot, part, mixed)
                continue
            rows = slots.prefill_all(slot, part, mixed)
            if (found := self._prompts.add(name, prompt, start, rows)) is not None:
                self._prompt_logprobs[name] = found
            logits = rows[-1]
        return logits

    def sample(self, grammar: Any) -> Any:
        """The next tokens after `run`, as vLLM's `ModelRunnerOutput`."""
        batch, meta = self._batch, self._batch.sampling_metadata
        logprobs = None
        plain = self._is_plain_greedy(meta)
        if not plain or grammar is not None:
            logits = torch.from_numpy(np.stack(self._rows)).to(torch.float32)
        if grammar is not None:
            apply_grammar_bitmask(self._step, grammar, batch, logits)
        if plain and grammar is None:
            chosen = [_greedy(row) if sampled else 0 for row, sampled in zip(self._rows, self._sampled, strict=True)]
        elif plain:
            chosen = logits.argmax(dim=-1).tolist()
        else:
            # A request in mid-prefill has no token yet: its generator must not move on.
            kept = {i: g.get_state() for i, g in meta.generators.items() if not self._sampled[i]}
            with torch.no_grad():
                output = self._sampler(logits, meta)
            for index, state in kept.items():
                meta.generators[index].set_state(state)
            chosen = output.sampled_token_ids[:, 0].tolist()
            if output.logprobs_tensors is not None:
                logprobs = output.logprobs_tensors.tolists()
        tokens: list[list[int]] = []
        for name, token, sampled in zip(batch.req_ids, chosen, self._sampled, strict=True):
            tokens.append([token] if sampled else [])
            self._requests[name].output_token_ids.extend(tokens[-1])
        return ModelRunnerOutput(
            req_ids=list(batch.req_ids),
            req_id_to_index=dict(batch.req_id_to_index),
            sampled_token_ids=tokens,
            logprobs=logprobs,
            prompt_logprobs_dict=self._prompt_logprobs,
        )

    def _is_plain_greedy(self, meta: Any) -> bool:
        changed = (
            meta.max_num_logprobs is not None
            or meta.logprob_token_ids
            or meta.allowed_token_ids_mask is not None
            or meta.bad_words_token_ids
            or meta.thinking_budget_state_holder is not None
        )
        # Processors that cannot change the argmax need not run; the others say nothing of whether they are idle.
        idle = all(
            type(each).__module__.startswith("vllm.")
            and not getattr(each, "biases", None)
            and not getattr(each, "min_toks", None)
            for each in meta.logitsprocs.non_argmax_invariant
        )
        return bool(meta.all_greedy and meta.no_penalties and idle and not changed)

    def _slot(self, state: Any, start: int) -> int:
        slot = state.block_ids[0][0] - 1
        if self._owners[slot] != state.req_id:
            self._owners[slot], self._slots.tokens[slot] = state.req_id, []
        self._slots.assign(slot, key_of(state.lora_request))
        held = self._slots.tokens[slot]
        if self._slots.carries:  # a part of a chunk may wait, and states do not go back
            start = held_at(start, state.num_prompt_tokens, self._slots.chunk_length)
        if start > len(held) or (self._slots.carries and start < len(held)):
            raise RuntimeError(
                f"request {state.req_id}: vLLM counts on {start} computed tokens, slot {slot} has {len(held)} of this "
                "request; slots share no blocks: turn prefix caching off"
            )
        del held[start:]
        return slot

    def _take_rows(self, asked: Any) -> None:
        """Rows for prompts that begin in this step, from where the connector's other half saw them."""
        connector = self._connector
        connector.bind_connector_metadata(asked)
        connector.start_load_kv(None)
        connector.clear_connector_metadata()
        for admission in asked.admissions:
            self._owners[admission.seat.slot] = admission.name
            source = admission.seat.source
            if source is not None and self._owners[source] is None:
                self._slots.park(source)

    def _release(self, name: str) -> None:
        for slot, owner in enumerate(self._owners):
            if owner == name:
                self._owners[slot] = None
                self._slots.park(slot)


def _greedy(logits: np.ndarray) -> int:
    """Of equal logits the lowest id, and of NaN the first, as torch's argmax."""
    try:
        return greedy_token(logits)
    except ValueError:
        return int(logits.argmax())
