"""Many requests over one package: they come and go while others are being answered (docs/serving.md).

`Engine.open(folder)` gives an engine; `add` queues a request, `step` does a bounded amount of work and returns what
came of it, `abort` ends a request. One thread may use an engine. `Driver` gives it a thread of its own, for a server,
and `Replicas` makes several of one package look like one.
numpy is enough.

>>> engine = Engine.open("OUT", tokenizer=tokenizer)                                        # doctest: +SKIP
>>> engine.add(prompt_ids, SamplingParams(max_tokens=64))                                   # doctest: +SKIP
>>> while engine.has_work:                                                                  # doctest: +SKIP
...     for event in engine.step():
...         print(event.request_id, event.text, event.finish_reason)
"""

from ..mixed_prompt import Features, MixedPrompt
from .batch import answer_all
from .driver import Driver
from .engine import Engine
from .replicas import Replicas
from .request import Event, QueueFullError, Request, RequestError, State, TokenLogprob, Usage
from .sampling_params import SamplingParams
from .slot_rows import SlotRows
from .slots import Slots
from .speculate import Drafter, DraftModel, PromptLookup
from .stats import EngineStats
from .structured import StructuredOutput, Tagged

__all__ = [
    "DraftModel",
    "Drafter",
    "Driver",
    "Engine",
    "EngineStats",
    "Event",
    "Features",
    "MixedPrompt",
    "PromptLookup",
    "QueueFullError",
    "Replicas",
    "Request",
    "RequestError",
    "SamplingParams",
    "SlotRows",
    "Slots",
    "State",
    "StructuredOutput",
    "Tagged",
    "TokenLogprob",
    "Usage",
    "answer_all",
]
