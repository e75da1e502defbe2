"""The parts of the server that need no model: replies, streams, options."""

import asyncio
import itertools
import os
import random
import signal
import threading
from types import SimpleNamespace

import msgspec
import pytest

from tcim_lite.llm.engine import Event, SamplingParams
from tcim_lite.serve.answers import Answers
from tcim_lite.serve.arrivals import Arrivals
from tcim_lite.serve.options import ServeOptions
from tcim_lite.serve.reply_parts import ForcedCall, Parts, ReplyParts
from tcim_lite.serve.streams import EventStream, event_lines
from tcim_lite.serve.tool_calls import CallPart

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def call(arguments='{"a": 1}'):
    return CallPart("add", arguments)


def joined(parts, pieces) -> Parts:
    whole = Parts()
    for made in (*map(parts.add, pieces), parts.rest()):
        whole.reasoning += made.reasoning
        whole.content += made.content
        for part in made.calls:
            if part.name is not None:
                whole.calls.append(CallPart(part.name))
            whole.add_arguments(part.arguments)
    return whole


def every_way_to_cut(text):
    """Whole, letter by letter, once at every place, and a hundred times at some places."""
    yield from ([text], list(text))
    places, rng = range(1, len(text)), random.Random(text)
    yield from ([text[:place], text[place:]] for place in places)
    for _ in range(100):
        cuts = [0, *sorted(rng.sample(places, rng.randint(0, len(places)))), len(text)]
        yield [text[a:b] for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize(
    ("text", "options", "wanted"),
    [
        ("12 + 30 = 42", {}, Parts(content="12 + 30 = 42")),
        ("<think>\nhm\n</think>\n\n42", {}, Parts("hm\n", "42")),
        ("hm</think>42", {"is_thinking": True}, Parts("hm", "42")),
        ("<think>for ever", {}, Parts("for ever")),
        ("a < b, <b>, <thin", {}, Parts(content="a < b, <b>, <thin")),
        ("later <think>is text</think>", {}, Parts(content="later <think>is text</think>")),
        (CALL, {}, Parts(calls=[call()])),
        (f"So:\n{CALL}\n{CALL}", {}, Parts(content="So:\n", calls=[call(), call()])),
        ("<think>x</think>" + CALL, {}, Parts("x", "", [call()])),
        (CALL.replace("add", "rm"), {}, Parts(content=CALL.replace("add", "rm"))),
        (CALL[:-3], {}, Parts(calls=[call()])),
        (CALL[:-16], {}, Parts(calls=[call('{"a": ')])),
        (CALL[:30], {}, Parts(content=CALL[:30])),
        # Braces, quotes and tags in strings are part of them.
        (CALL.replace("1", r'"}\"</tool_call>{"'), {}, Parts(calls=[call(r'{"a": "}\"</tool_call>{"}')])),
        (CALL.replace("1", "[{}, [1], {}]") + "!", {}, Parts(content="!", calls=[call('{"a": [{}, [1], {}]}')])),
        # What is no JSON ends with the tag.
        (CALL.replace("1}", '"') + "ok", {}, Parts(content="ok", calls=[call('{"a": "}\n')])),
        (CALL.replace("1}}", "1") + "ok", {}, Parts(content="ok", calls=[call('{"a": 1\n')])),
        (CALL.replace("}}", '}, "id": 3}') + "ok", {}, Parts(content="ok", calls=[call()])),
        # Only a call whose name comes first can be told before its end.
        ('<tool_call>{"arguments": {"a":1}, "name": "add"}</tool_call>', {}, Parts(calls=[call()])),
        ('<tool_call>{"name": "add", "arguments": "x"}</tool_call>', {}, Parts(calls=[call("x")])),
        ('<tool_call>{"name": "add"}</tool_call>', {}, Parts(calls=[call("{}")])),
        ('<tool_call>{"name": "add", "parameters": {"a": 1}}</tool_call>', {}, Parts(calls=[call()])),
        *(
            (text, {}, Parts(content=text))  # which JSON, or UTF-8, cannot have
            for value in ("NaN", r'"\ud800"')
            for text in [f'<tool_call>{{"arguments": {value}, "name": "add"}}</tool_call>']
        ),
        ("<tool_call>[1]</tool_call>!", {}, Parts(content="<tool_call>[1]</tool_call>!")),
        ("", {}, Parts()),
    ],
)
def test_a_reply_is_split_the_same_way_wherever_its_pieces_end(text, options, wanted):
    for pieces in every_way_to_cut(text):
        assert joined(ReplyParts(frozenset({"add"}), **options), pieces) == wanted, pieces


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("add", '{"a": 1}', Parts(calls=[call()])),
        ("add", '{"a"', Parts(calls=[call('{"a"')])),
        ("add", "", Parts(calls=[call("")])),
        (None, '{"name":"add", "arguments": {"a": 1} }', Parts(calls=[call()])),
        (None, '{"name":"add", "arguments": {"a"', Parts(calls=[call('{"a"')])),
        (None, '{"name":"add", "arguments": ["a"]}', Parts(calls=[call('["a"]')])),
        (None, '{"name":"ad', Parts(content='{"name":"ad')),
    ],
)
def test_a_call_that_a_grammar_makes_is_told_the_same_way_wherever_its_pieces_end(name, text, wanted):
    for pieces in every_way_to_cut(text):
        assert joined(ForcedCall(name, frozenset({"add"})), pieces) == wanted, pieces


def test_arguments_come_as_they_are_written():
    parts = ReplyParts(frozenset({"add"}))
    told = [parts.add(letter).calls for letter in CALL]
    (begin,) = [at for at, calls in enumerate(told) if calls and calls[0].name]
    assert CALL[: begin + 1].endswith('"arguments": {')
    assert [calls[0].arguments for calls in told if calls] == list('{"a": 1}')


def test_without_tools_a_call_is_text():
    parts = ReplyParts()
    assert parts.add(CALL).content + parts.rest().content == CALL


def test_a_stream_of_answers_at_hand_notices_that_its_client_has_left():
    class Engines:
        def submit(self, prompt, params, on_event):
            for _ in range(100):
                on_event(Event(request_id="a"))
            on_event(Event(request_id="a", finish_reason="stop"))
            return "a"

        def abort(self, request_id):
            pass

    class AnyWriter:
        last = b"data: [DONE]\n\n"

        def begin(self):
            return []

        def add(self, index, event):
            return [{}]

        def end(self):
            return []

    async def sent_before_it_is_noticed() -> int:
        loop, is_closed, closed_at = asyncio.get_running_loop(), asyncio.Event(), []

        async def send(message):
            closed_at.append(is_closed.is_set())
            if len(closed_at) == 3:
                loop.call_soon(is_closed.set)  # as asyncio tells of a write that failed

        async def receive():
            await asyncio.sleep(3600)

        answers = Answers(Engines(), SimpleNamespace(watch=lambda length: lambda event: None), 60.0)
        await answers.submit(None, [[1]], SamplingParams(), 1)
        await EventStream(answers, AnyWriter(), ServeOptions(model="m"))({}, receive, send)
        return closed_at.count(False)

    assert asyncio.run(sent_before_it_is_noticed()) <= 4


@pytest.mark.parametrize("origin", ["chat.example", "https://chat.example/", "https://a.example,https://b.example", ""])
def test_an_origin_that_no_browser_sends_is_refused(origin):
    with pytest.raises(ValueError, match="expected SCHEME://HOST"):
        ServeOptions(model="m", cors_origins=(origin,))


def test_what_comes_while_the_loop_is_behind_arrives_in_order_and_leaves_room_for_signals():
    """A pipe of wake-ups holds some 280; asyncio's own signal handlers use it, so they show that there is room."""
    got, signals = [], []

    async def work() -> None:
        loop, arrivals = asyncio.get_running_loop(), Arrivals.here()
        loop.add_signal_handler(signal.SIGUSR1, signals.append, 1)
        thread = threading.Thread(target=lambda: [arrivals.call(got.append, number) for number in range(5000)])
        thread.start()
        thread.join()  # the loop stands still
        os.kill(os.getpid(), signal.SIGUSR1)
        while len(got) < 5000:
            signals_before = len(signals)
            await asyncio.sleep(0)
        assert signals_before, "others have their turn between"
        assert Arrivals.here() is arrivals
        loop.remove_signal_handler(signal.SIGUSR1)

    asyncio.run(work())
    assert got == list(range(5000))
    assert signals == [1]


def test_events_have_no_ends_of_lines_inside() -> None:
    events = [{"text": "a\x85b\u2028c\u2029d\r\n\x0b\x1cé"}, {"type": "x", "delta": "\u2028"}]
    lines = event_lines(events).decode().splitlines()
    assert [line[:6] for line in lines] == ["data: ", "", "event:", "data: ", ""]
    assert [msgspec.json.decode(line[6:]) for line in lines if line.startswith("data")] == events
