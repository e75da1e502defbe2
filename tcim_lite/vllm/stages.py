"""One stage of a pipeline in a worker of its own: hidden rows come from the worker before and go to the one after.

Every worker runs the same scheduler outputs in the same order, so each keeps the lengths of all slots by itself, and
only rows travel: the tokens' rows of a prefill chunk, or a row for every slot of a decode step. A message is as long as
its receiver expects, and says in its first bytes whether a stage before failed, so that the last stage, the only one
whose answer vLLM waits for, reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tcim_lite.runtime as tcim
from tcim_lite import hmm
from tcim_lite.llm import Package
from tcim_lite.llm.engine.language_stage import LanguageStage
from tcim_lite.llm.engine.slots import Slots
from tcim_lite.llm.engine.stage import DecodeStep
from tcim_lite.llm.ports import is_state

_HEAD = 8  # bytes: the length of an error's text, which then is in place of rows; 0 before rows


class StageError(RuntimeError):
    """A stage before this one failed."""


class Link:
    """Rows from the stage before and to the stage after, over the CPU group of vLLM's pipeline group (gloo).

    Args:
        group: `vllm.distributed.get_pp_group()`, or what has its ranks, neighbours and `cpu_group`.
    """

    def __init__(self, group: Any):
        self._group = group
        self._sent: Any = None  # the message on its way, and its memory
        self.first, self.last = bool(group.is_first_rank), bool(group.is_last_rank)

    def receive(self, rows: np.ndarray) -> None:
        """Fills `rows` with those that the stage before sent.

        Raises:
            StageError: It sent an error.
            RuntimeError: Its process has ended.
        """
        message = np.empty(_HEAD + rows.nbytes, np.uint8)
        torch.distributed.recv(torch.from_numpy(message), self._group.prev_rank, group=self._group.cpu_group)
        length = int(message[:_HEAD].view(np.int64)[0])
        if length:
            raise StageError(message[_HEAD : _HEAD + length].tobytes().decode(errors="replace"))
        rows.reshape(-1).view(np.uint8)[:] = message[_HEAD:]

    def send(self, rows: np.ndarray) -> None:
        """Sends rows without waiting for the stage after; waits for the rows before to have left."""
        message = np.zeros(_HEAD + rows.nbytes, np.uint8)
        message[_HEAD:] = rows.reshape(-1).view(np.uint8)
        self._post(message)

    def fail(self, error: BaseException, nbytes: int) -> None:
        """Sends an error in place of rows of that size."""
        text = f"{type(error).__name__}: {error}".encode()[:nbytes]
        message = np.zeros(_HEAD + nbytes, np.uint8)
        message[:_HEAD].view(np.int64)[0] = len(text)
        message[_HEAD : _HEAD + len(text)] = np.frombuffer(text, np.uint8)
        self._post(message)

    def _post(self, message: np.ndarray) -> None:
        if self._sent is not None:
            self._sent[0].wait()
        tensor = torch.from_numpy(message)
        work = torch.distributed.isend(tensor, self._group.next_rank, group=self._group.cpu_group)
        self._sent = (work, tensor)


class LinkedStage(LanguageStage):
    """A stage whose input rows come over its link, but the first's, and whose outputs go on over it, but the last's.

    Attributes:
        link: To the neighbours.
        vocab_size: V. A stage other than the last returns zeros in the form of logits.
    """

    link: Link
    vocab_size: int

    def run_prompt(
        self, graph: Any, slot: int, rows: np.ndarray, valid: int, current: int, **others: Any
    ) -> np.ndarray:
        """As `Stage.run_prompt`; raises as `Link.receive` too."""
        run = super().run_prompt
        return self._run(rows, current, lambda given: run(graph, slot, given, valid, current, **others))

    def run_decode(self, rows: np.ndarray, step: DecodeStep, output: str | None = None) -> np.ndarray:
        """As `Stage.run_decode`; raises as `Link.receive` too."""
        run = super().run_decode
        return self._run(rows, 1, lambda given: run(given, step, output))

    def _run(self, rows: np.ndarray, tokens: int, run: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Of rows [_, L, H] the first `tokens` travel: the others are padding, zeros before and after a stage."""
        link, part = self.link, np.empty((rows.shape[0], tokens, rows.shape[2]), rows.dtype)
        try:
            if not link.first:
                link.receive(part)
                rows = np.zeros_like(rows)
                rows[:, :tokens] = part
            result = run(rows)
        except BaseException as error:
            if not link.last:
                link.fail(error, part.nbytes)
            raise
        if link.last:
            return result
        part[:] = result[:, :tokens]
        link.send(part)
        return np.broadcast_to(np.float16(0), (*result.shape[:2], self.vocab_size))


def load_stage(package: Package, rank: int, device: int, link: Link) -> Slots:
    """The slots of a package, of which this process runs stage `rank` on a device; only the last returns logits.

    Raises:
        FileNotFoundError: As `Package.parts`.
        TcimError: A file that cannot be loaded.
        ValueError: Graphs that do not fit together.
    """
    prefill, decode = package.parts("prefill"), package.parts("decode")
    stage = LinkedStage.load(prefill[rank], decode[rank], tcim.WeightManager(device))
    assert isinstance(stage, LinkedStage)
    output = hmm.read(prefill[-1]).graph
    assert output is not None
    logits, stage.vocab_size = output.values[output.outputs[0]].shape[-2:]
    stage.link = link
    hidden_size = stage.prefill.get_input_info(stage.prefill.get_input_name(0)).shape[-1]
    slots = Slots([stage], package.embedding(hidden_size, stage.vocab_size))
    # What `Slots` reads of a stage that puts out hidden rows is not that of the package.
    slots.vocab_size, slots.all_logits = stage.vocab_size, logits == slots.chunk_length
    slots.carries = any(_has_states(path) for path in prefill)  # all stages cut a prompt alike
    slots.alone_by_prefill = False  # chosen by each machine's environment, but all stages must run the same graphs
    return slots


def _has_states(path: Path) -> bool:
    graph = hmm.read(path).graph
    return graph is not None and any(is_state(graph.values[number].name) for number in graph.inputs)
