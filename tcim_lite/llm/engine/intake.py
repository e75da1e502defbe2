"""What becomes of a prompt before it is queued: checks, a sampler, a grammar. Any thread may do it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..mixed_prompt import MixedPrompt
from ..prompt import check_prompt
from .answer_text import AnswerText
from .request import Request, RequestError
from .sampling_params import SamplingParams
from .slots import Slots
from .structured import Grammars


class Intake:
    """Makes requests for one engine; changes nothing of it.

    Args:
        slots: What its limits are taken from, once.
        tokenizer: As in `Engine`.
        stop_tokens: As in `Engine`.
    """

    def __init__(self, slots: Slots, tokenizer: Any, stop_tokens: Collection[int]):
        self.context_length, self.vocab_size, self.tokenizer = slots.context_length, slots.vocab_size, tokenizer
        self._all_logits, self._gives_hidden = slots.all_logits, slots.hidden_size > 0
        self._stop_tokens, self._adapters = frozenset(stop_tokens), slots.adapters
        self._hears, self._chunk_length = slots.stages[0].hears, slots.chunk_length
        self._width, self._stacks = slots.feature_width, slots.stack_count
        self._grammars = Grammars(tokenizer, self.vocab_size, stop_tokens)

    def check(self, prompt: Sequence[int]) -> list[int]:
        """The prompt as a list of ints.

        Raises:
            RequestError: It is empty, longer than the context, or has something else than ids of the vocabulary.
        """
        try:
            return check_prompt(prompt, self.context_length, self.vocab_size)
        except ValueError as error:
            raise RequestError(str(error)) from None

    def prepare(self, prompt: Sequence[int], params: SamplingParams | None, request_id: str) -> Request:
        """A request ready for `enqueue`. It changes nothing of the engine: any thread may call it.

        Raises:
            RequestError: As `check`, or `params` asks for what this engine cannot do; llguidance is missing, or cannot
                use the schema.
            TypeError: `params` is something else.
        """
        params = SamplingParams() if params is None else params
        if not isinstance(params, SamplingParams):
            raise TypeError(f"params={params!r:.80}: expected SamplingParams")
        if self._gives_hidden and params.max_tokens != 0:
            raise RequestError(
                "the graphs of this package return hidden states, from which no tokens are chosen: it was compiled "
                "with --hidden-states. Ask for embeddings (max_tokens=0), or compile it without"
            )
        if params.adapter is not None and params.adapter not in (known := self._adapters.names):
            raise RequestError(
                f"adapter {params.adapter!r:.80} is not loaded; loaded are {', '.join(known) or 'none'}. Open the "
                "engine with adapters={NAME: FOLDER}"
            )
        checked = self.check(prompt)
        if isinstance(prompt, MixedPrompt):
            self._check_features(prompt)
        if self._hears and not (isinstance(prompt, MixedPrompt) and prompt.part(0, 1).beside is not None):
            raise RequestError(
                "the prompt has no sound, and this model only writes down what is said in one: `tcim-lite serve` it, "
                "and send the file to /v1/audio/transcriptions"
            )
        request = Request(request_id, prompt if isinstance(prompt, MixedPrompt) else checked, params)
        told = (*(params.logit_bias or ()), *params.stop_token_ids, *params.logprob_token_ids)
        bad = next((token for token in told if not 0 <= token < self.vocab_size), None)
        if bad is not None:
            raise RequestError(
                f"token {bad} of logit_bias, stop_token_ids or logprob_token_ids is outside the vocabulary of "
                f"{self.vocab_size}"
            )
        ends = params.stop_token_ids | (frozenset() if params.ignore_eos else self._stop_tokens)
        request.ends = tuple(token for token in ends if token < self.vocab_size)
        if params.prompt_logprobs is not None and not self._all_logits:
            raise RequestError(
                "logprobs of the prompt need the logits of all its tokens, and this package's prefill graph returns "
                "the last; compile with --all-logits"
            )
        if self.tokenizer is not None:
            request.text = AnswerText(self.tokenizer, params.stop, skip_special_tokens=params.skip_special_tokens)
        elif params.stop or params.structured:
            raise RequestError("stop strings and structured output need an engine with a tokenizer")
        if params.structured is not None:
            try:
                request.matcher = self._grammars.matcher(params.structured)
            except (ValueError, ImportError) as error:
                raise RequestError(str(error)) from error
        return request

    def _check_features(self, prompt: MixedPrompt) -> None:
        """Raises RequestError unless the graphs take the features of a prompt."""
        for _, features in prompt.places:
            if (width := features.rows.shape[1]) != self._width:
                raise RequestError(
                    f"features of {width} numbers a token, the graphs take {self._width}; use this package's towers"
                )
            if len(features.deepstack) not in (0, self._stacks):
                raise RequestError(
                    f"{len(features.deepstack)} deepstack features, the graphs take {self._stacks}; use this package's "
                    "towers"
                )
            if features.sees_itself and len(features) > self._chunk_length:
                raise RequestError(
                    f"an image of {len(features)} tokens, which see each other, has to be in one run, and a run takes "
                    f"{self._chunk_length}; compile with --prefill-length {len(features)} or more"
                )
