"""Times and rates of one request, which the vendor's LLM and VLM demos measure and print.

The module has the vendor's name, spelling included. Where the vendor's own summary depends on how a program uses the
tracker, this one states the definition: `InferenceMetrics` says what each figure is.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from enum import IntEnum, auto

__all__ = ["PERFTYPE", "InferenceMetrics", "InferencePerformanceTracker", "PerfInformations"]


class PERFTYPE(IntEnum):
    """What is timed: a stage and a part of it. Loading belongs to no request; all other types do."""

    PREFILL_LOAD_TIME = auto()
    PREFILL_TOTAL_TIME = auto()
    PREFILL_TOKEN_TIME = auto()
    PREFILL_EMBED_TIME = auto()
    PREFILL_INPUT_TIME = auto()
    PREFILL_INFER_TIME = auto()
    PREFILL_OUTPUT_TIME = auto()
    DECODE_LOAD_TIME = auto()
    DECODE_TOTAL_TIME = auto()
    DECODE_TOKEN_TIME = auto()
    DECODE_EMBED_TIME = auto()
    DECODE_INPUT_TIME = auto()
    DECODE_INFER_TIME = auto()
    DECODE_OUTPUT_TIME = auto()
    VISION_LOAD_TIME = auto()
    VISION_PREPROCESS_TIME = auto()
    VISION_TOTAL_TIME = auto()
    VISION_INPUT_TIME = auto()
    VISION_INFER_TIME = auto()
    VISION_OUTPUT_TIME = auto()
    AUDIO_LOAD_TIME = auto()
    AUDIO_PREPROCESS_TIME = auto()
    AUDIO_TOTAL_TIME = auto()
    AUDIO_INPUT_TIME = auto()
    AUDIO_INFER_TIME = auto()
    AUDIO_OUTPUT_TIME = auto()


_STAGES = ("prefill", "decode", "vision", "audio")


# Part of a PERFTYPE's name -> field of PerfInformations, and the name in the summary.
_PARTS = {
    "TOTAL": ("total_time", "total"),
    "PREPROCESS": ("preprocess_time", "preprocess"),
    "TOKEN": ("tokenizer_time", "tokenizer"),
    "EMBED": ("embedding_time", "embedding"),
    "INPUT": ("setinput_time", "set input"),
    "INFER": ("infer_time", "inference"),
    "OUTPUT": ("getoutput_time", "get output"),
}


@dataclass
class PerfInformations:
    """Milliseconds of one stage, summed over the request."""

    total_time: float = 0.0
    preprocess_time: float = 0.0
    tokenizer_time: float = 0.0
    embedding_time: float = 0.0
    setinput_time: float = 0.0
    infer_time: float = 0.0
    getoutput_time: float = 0.0
    total_speed: float = 0.0
    infer_speed: float = 0.0

    @property
    def vision_total_time(self) -> float:
        """`total_time`, by the name that the vendor's demos read."""
        return self.total_time

    @property
    def vision_preprocess_time(self) -> float:
        """`preprocess_time`, by the name that the vendor's demos read."""
        return self.preprocess_time

    audio_total_time = vision_total_time
    audio_preprocess_time = vision_preprocess_time

    def measured(self) -> float:
        """`total_time`; where the program did not time the whole stage, the sum of the parts that it timed."""
        return self.total_time or sum(getattr(self, name) for name, _ in _PARTS.values())


@dataclass
class InferenceMetrics:
    """What is known of a request. Times are milliseconds, except `e2e_time` in seconds.

    Attributes:
        batch_size: sequences that run together.
        input_seq_length: tokens of the prompt, of each sequence.
        output_seq_length: tokens that decode made, of each sequence. Prefill made one more, the first.
        num_images: images of the request.
        num_audios: recordings of the request.
        num_audio_chunks: parts that they were cut into; 0 for one each.
        ttft: from the first timed event to the end of the last prefill event before decode begins.
        tpot: decode's time for one step; a step makes one token of every sequence.
        e2e_time: from the first timed event to the last.
        e2e_tps: tokens of all sequences, prefill's included, for each second of `e2e_time`.
        prefill_load_time: time to load; likewise for the other stages.
        prefill_perf_infos: parts of a stage. `total_speed` and `infer_speed` are tokens/s of all sequences, in the
            vision stage images/s, in the audio stage chunks/s.
    """

    batch_size: int = 0
    input_seq_length: int = 0
    output_seq_length: int = 0
    num_images: int = 0
    num_audios: int = 0
    num_audio_chunks: int = 0
    ttft: float = 0.0
    tpot: float = 0.0
    e2e_time: float = 0.0
    e2e_tps: float = 0.0
    prefill_load_time: float = 0.0
    decode_load_time: float = 0.0
    vision_load_time: float = 0.0
    audio_load_time: float = 0.0
    prefill_perf_infos: PerfInformations = field(default_factory=PerfInformations)
    decode_perf_infos: PerfInformations = field(default_factory=PerfInformations)
    vision_perf_infos: PerfInformations = field(default_factory=PerfInformations)
    audio_perf_infos: PerfInformations = field(default_factory=PerfInformations)


class InferencePerformanceTracker:
    """Times the parts of a request and prints what they amount to.

    A request ends with `reset_perf_time`, or when something is timed after `show_summary`; load times stay.

    Attributes:
        current_metrics: the times so far; its rates are those of the last `calculate_metrics` or `show_summary`.
    """

    def __init__(self) -> None:
        self.current_metrics = InferenceMetrics()
        self._started: dict[PERFTYPE, float] = {}
        self._begin: float | None = None
        self._first_token: float | None = None
        self._end = 0.0
        self._decoding = False
        self._shown = False

    def perf_start(self, perf_type: PERFTYPE) -> None:
        """Starts the clock of `perf_type`. ValueError if it is none."""
        kind = PERFTYPE(perf_type)
        is_load = kind.name.endswith("LOAD_TIME")
        if self._shown and not is_load:
            self.reset_perf_time()
        now = time.perf_counter()
        self._started[kind] = now
        if is_load:
            return
        if self._begin is None:
            self._begin = now
        self._decoding = self._decoding or kind.name.startswith("DECODE")

    def perf_end(self, perf_type: PERFTYPE) -> None:
        """Adds the time since `perf_start(perf_type)`; without that call, it warns and adds nothing."""
        now = time.perf_counter()
        kind = PERFTYPE(perf_type)
        start = self._started.pop(kind, None)
        if start is None:
            warnings.warn(f"perf_end({kind.name}) without perf_start({kind.name}): no time is added", stacklevel=2)
            return
        stage, part = kind.name.removesuffix("_TIME").split("_")
        spent = (now - start) * 1e3
        if part == "LOAD":
            name = f"{stage.lower()}_load_time"
            setattr(self.current_metrics, name, getattr(self.current_metrics, name) + spent)
            return
        infos, (name, _) = getattr(self.current_metrics, f"{stage.lower()}_perf_infos"), _PARTS[part]
        setattr(infos, name, getattr(infos, name) + spent)
        self._end = now
        if stage != "DECODE" and not self._decoding:
            self._first_token = now

    def reset_perf_time(self) -> None:
        """Forgets the request. Load times stay, and clocks that run start again now."""
        old, self.current_metrics = self.current_metrics, InferenceMetrics()
        for name in (f"{stage}_load_time" for stage in _STAGES):
            setattr(self.current_metrics, name, getattr(old, name))
        now = time.perf_counter()
        for kind in self._started:
            if not kind.name.endswith("LOAD_TIME"):
                self._started[kind] = now
        self._begin = now if any(not kind.name.endswith("LOAD_TIME") for kind in self._started) else None
        self._first_token = None
        self._end = now
        self._decoding = any(kind.name.startswith("DECODE") for kind in self._started)
        self._shown = False

    def set_basic_info(
        self,
        batch_size: int,
        input_seq_length: int,
        output_seq_length: int,
        num_images: int = 0,
        num_audios: int = 0,
        num_audio_chunks: int = 0,
    ) -> None:
        """Says what was computed; see `InferenceMetrics`. ValueError for a number below 0, or a batch below 1."""
        given = {
            "batch_size": batch_size,
            "input_seq_length": input_seq_length,
            "output_seq_length": output_seq_length,
            "num_images": num_images,
            "num_audios": num_audios,
            "num_audio_chunks": num_audio_chunks,
        }
        for name, value in given.items():
            if value < (least := int(name == "batch_size")):
                raise ValueError(f"{name}={value}: expected at least {least}")
            setattr(self.current_metrics, name, int(value))

    def calculate_metrics(self) -> None:
        """Computes the rates of `current_metrics`."""
        metrics = self.current_metrics
        begin = self._begin if self._begin is not None else self._end
        metrics.ttft = (self._first_token - begin) * 1e3 if self._first_token is not None else 0.0
        metrics.e2e_time = self._end - begin
        metrics.e2e_tps = _rate(metrics.batch_size * (metrics.output_seq_length + 1), metrics.e2e_time * 1e3)
        metrics.tpot = (
            metrics.decode_perf_infos.measured() / metrics.output_seq_length if metrics.output_seq_length else 0.0
        )
        for infos, amount in (
            (metrics.prefill_perf_infos, metrics.batch_size * metrics.input_seq_length),
            (metrics.decode_perf_infos, metrics.batch_size * metrics.output_seq_length),
            (metrics.vision_perf_infos, metrics.num_images),
            (metrics.audio_perf_infos, metrics.num_audio_chunks or metrics.num_audios),
        ):
            infos.total_speed = _rate(amount, infos.measured())
            infos.infer_speed = _rate(amount, infos.infer_time)

    def show_summary(self) -> None:
        """Prints the request; figures that were not timed are left out."""
        self.calculate_metrics()
        self._shown = True
        print("\n".join(_lines(self.current_metrics)), flush=True)


def _rate(amount: float, milliseconds: float) -> float:
    return amount / milliseconds * 1e3 if milliseconds > 0 else 0.0


def _lines(metrics: InferenceMetrics) -> list[str]:
    lines = [
        "Performance of the request",
        f"  batch {metrics.batch_size}, for each sequence {metrics.input_seq_length} tokens in and "
        f"{metrics.output_seq_length + 1} out, the first of them by prefill"
        + (f"; {metrics.num_images} images" if metrics.num_images else "")
        + (f"; {metrics.num_audios} recordings" if metrics.num_audios else ""),
    ]
    loads = [(name, getattr(metrics, f"{name}_load_time")) for name in _STAGES]
    lines += [f"  {'load ' + name:22}{spent:12.2f} ms" for name, spent in loads if spent]
    units = {"vision": "images/s", "audio": "chunks/s", "prefill": "tokens/s", "decode": "tokens/s"}
    for stage, unit in units.items():
        infos: PerfInformations = getattr(metrics, f"{stage}_perf_infos")
        for name, label in _PARTS.values():
            if not (spent := getattr(infos, name)):
                continue
            speed = {"total_time": infos.total_speed, "infer_time": infos.infer_speed}.get(name, 0.0)
            lines.append(f"  {stage + ' ' + label:22}{spent:12.2f} ms" + (f"{speed:12.2f} {unit}" if speed else ""))
    if metrics.ttft:
        lines.append(f"  {'TTFT':22}{metrics.ttft:12.2f} ms")
    if metrics.tpot:
        lines.append(f"  {'TPOT':22}{metrics.tpot:12.2f} ms")
    if metrics.e2e_time:
        lines.append(f"  {'end to end':22}{metrics.e2e_time * 1e3:12.2f} ms{metrics.e2e_tps:12.2f} tokens/s")
    return lines
