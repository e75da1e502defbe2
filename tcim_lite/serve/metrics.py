"""What /metrics tells, under vLLM's names with `tcim:` for `vllm:`, so that boards made for it can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .. import clock
from ..llm.engine import Event, Replicas

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TOKENS = tuple(2**i for i in range(18))


class Metrics:
    """Histograms of requests, and counts that the engines keep. Thread-safe.

    Args:
        engines: Whose counts are told, summed up.
        model: Value of the label `model_name`.
    """

    def __init__(self, engines: Replicas, model: str):
        self._registry, self._model = CollectorRegistry(), model
        self._registry.register(_EngineCollector(engines, model))
        self._first = self._histogram("time_to_first_token_seconds", "From arrival to the first token.", _SECONDS)
        self._between = self._histogram("inter_token_latency_seconds", "Between two tokens of an answer.", _SECONDS)
        self._whole = self._histogram("e2e_request_latency_seconds", "From arrival to the last token.", _SECONDS)
        self._queue = self._histogram("request_queue_time_seconds", "From arrival to a slot.", _SECONDS)
        self._prompt = self._histogram("request_prompt_tokens", "Tokens of prompts.", _TOKENS)
        self._answer = self._histogram("request_generation_tokens", "Tokens of answers.", _TOKENS)

    def watch(self, prompt_tokens: int) -> Callable[[Event], None]:
        """What observes one request that arrives now; the engine's thread calls it with every event."""
        arrived = last = perf_counter()
        is_first = True

        def see(event: Event) -> None:
            nonlocal last, is_first
            now = perf_counter()
            for token in range(len(event.token_ids)):
                if is_first:
                    self._first.observe(now - last)
                    last, is_first = now, False
                else:  # one step may give several tokens, where guesses were right
                    self._between.observe((now - last) / (len(event.token_ids) - token))
                    last += (now - last) / (len(event.token_ids) - token)
            if event.finish_reason in ("stop", "length"):
                self._whole.observe(now - arrived)
                self._prompt.observe(prompt_tokens)
                if event.usage is not None:
                    self._answer.observe(event.usage.completion_tokens)
            if event.finish_reason is not None and event.queued_s is not None:
                self._queue.observe(event.queued_s)

        return see

    def text(self) -> bytes:
        """The exposition in Prometheus' text format."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        made = Histogram(f"tcim:{name}", text, ["model_name"], registry=self._registry, buckets=buckets)
        return made.labels(self._model)


class _EngineCollector(Collector):
    """Reads the engine when asked, so that its thread has nothing to do for it."""

    def __init__(self, engines: Replicas, model: str):
        self._engines, self._model = engines, model

    def collect(self) -> Iterable[Metric]:
        engines, stats = self._engines, self._engines.stats
        slots = engines.snapshot()
        running = sum(slot["request"] is not None for slot in slots)
        rows = len(slots) * engines.slots.context_length
        for name, text, value in (
            ("num_requests_running", "Requests in a slot.", running),
            ("num_requests_waiting", "Requests without a slot.", engines.waiting),
            ("slots", "Requests that can run at a time.", len(slots)),
            ("kv_cache_usage_perc", "Cache rows in use, 1 is all.", sum(slot["rows"] for slot in slots) / rows),
        ):
            yield self._one(GaugeMetricFamily(f"tcim:{name}", text, labels=["model_name"]), value)
        for name, text, value in (
            ("prompt_tokens", "Tokens of admitted prompts.", stats.prompt_tokens),
            ("prefix_cache_queries", "Tokens of prompts looked for in caches.", stats.prompt_tokens),
            ("prefix_cache_hits", "Tokens of prompts found in caches.", stats.cached_tokens),
            ("generation_tokens", "Tokens chosen.", stats.completion_tokens),
            ("decode_steps", "Runs of the decode graph.", stats.decode_steps),
            ("decode_tokens", "Tokens of those runs.", stats.decode_tokens),
            ("prefill_chunks", "Runs of the prefill graph.", stats.prefill_chunks),
            ("spec_decode_num_draft_tokens", "Guesses of tokens that were judged.", stats.drafted_tokens),
            ("spec_decode_num_accepted_tokens", "Guesses that were right.", stats.accepted_tokens),
        ):
            yield self._one(CounterMetricFamily(f"tcim:{name}", text, labels=["model_name"]), value)
        ended = CounterMetricFamily(
            "tcim:request_success", "Requests that ended, by reason.", labels=["model_name", "finished_reason"]
        )
        for reason, count in stats.finished.items():
            ended.add_metric([self._model, reason], count)
        yield ended
        if clock.mode() != "off":
            text = "Modelled seconds for which the chip would have run things."
            yield self._one(
                CounterMetricFamily("tcim:modelled_device_seconds", text, labels=["model_name"]), clock.device_seconds()
            )

    def _one(self, family: CounterMetricFamily | GaugeMetricFamily, value: float) -> Metric:
        family.add_metric([self._model], value)
        return family
