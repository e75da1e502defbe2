"""/v1/responses on the wire: the same answers as chats give, in the forms that OpenAI's client checks."""

import json

import openai
import pydantic
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from serve_live import CONTEXT, QUESTIONS, user
from test_serve_openai import CALL, SCHEMA, TOOLS

MODEL = "qwen3"
FLAT = [{"type": "function", **tool["function"], "strict": None} for tool in TOOLS]
EVENT = pydantic.TypeAdapter(ResponseStreamEvent)


def whole(server, **body) -> dict:
    answer = server.post("/v1/responses", json={"model": MODEL, "input": QUESTIONS[0], **body})
    assert answer.status_code == 200, answer.text
    Response.model_validate_json(answer.text, strict=True)
    return answer.json()


def streamed(server, **body) -> list[dict]:
    """The events, each read as the client reads it, and numbered without a gap."""
    answer = server.post("/v1/responses", json={"model": MODEL, "input": QUESTIONS[0], "stream": True, **body})
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
    events = []
    for block in answer.text.replace(": ping\n\n", "").strip().split("\n\n"):
        name, data = block.split("\n")
        EVENT.validate_json(data.removeprefix("data: "), strict=True)
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def told(response: dict) -> dict:
    """What a response says, without ids and times."""
    kept = {"reasoning": "", "content": "", "calls": [], "logprobs": []}
    for item in response["output"]:
        if item["type"] == "function_call":
            kept["calls"].append((item["name"], item["arguments"]))
        for part in item.get("content", ()):
            kept["reasoning" if item["type"] == "reasoning" else "content"] += part["text"]
            kept["logprobs"] += part.get("logprobs", ())
    usage = response["usage"]
    return {
        **kept,
        "cut": response["status"] == "incomplete",
        "tokens": (usage["input_tokens"], usage["output_tokens"]),
    }


def chatted(server, **body) -> dict:
    """The same of a chat."""
    answer = server.post("/v1/chat/completions", json={"model": MODEL, "messages": user(QUESTIONS[0]), **body}).json()
    (choice,), usage = answer["choices"], answer["usage"]
    message = choice["message"]
    return {
        "reasoning": message.get("reasoning_content", ""),
        "content": message["content"] or "",
        "calls": [
            (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()
        ],
        "logprobs": choice["logprobs"]["content"] if choice["logprobs"] else [],
        "cut": choice["finish_reason"] == "length",
        "tokens": (usage["prompt_tokens"], usage["completion_tokens"]),
    }


def guided(text: str) -> dict:
    return {"structured_outputs": {"regex": text}}


TURNS = [
    {"role": "system", "content": "Answer."},
    *user(QUESTIONS[1]),
    {"role": "assistant", "content": "Let me see.", "reasoning_content": "hm", "tool_calls": []},
    {"role": "tool", "content": "42", "tool_call_id": "a"},
    {"role": "tool", "content": "43", "tool_call_id": "b"},
    {"role": "assistant", "content": "Done."},
    {"role": "developer", "content": "Go on."},
    *user(QUESTIONS[0]),
]
for name in "ab":
    call = {"id": name, "type": "function", "function": {"name": "add", "arguments": '{"sum": 42}'}}
    TURNS[2]["tool_calls"].append(call)
ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTIONS[1]}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": "Let me see."},
    {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "add", "arguments": '{"sum": 42}'},
    {"type": "function_call", "call_id": "b", "name": "add", "arguments": '{"sum": 42}', "status": "completed"},
    {"type": "function_call_output", "call_id": "a", "output": "42"},
    {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "43"}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Done.", "annotations": [], "logprobs": []}]},
    {"role": "developer", "content": "Go on."},
    *user(QUESTIONS[0]),
]
FORMAT = {"name": "answer", "schema": SCHEMA, "strict": True}
LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
# Of each: fields of a response, those of a chat, those of both.
ALIKE = {
    "greedy": ({}, {}, {}),
    "sampled": ({"max_output_tokens": 12}, {"max_tokens": 12}, {"temperature": 8, "top_p": 0.9, "top_k": 5, "seed": 3}),
    "text and parts": ({"input": [{"role": "user", "content": "hi"}]}, {"messages": user("hi")}, {}),
    "instructions": (
        {"instructions": "Be brief.", "input": ITEMS[-1:]},
        {"messages": [{"role": "system", "content": "Be brief."}, *user(QUESTIONS[0])]},
        {},
    ),
    "a conversation": (
        {"instructions": "Answer.", "input": ITEMS, "tools": FLAT},
        {"messages": TURNS, "tools": TOOLS},
        {},
    ),
    "logprobs": (LOGPROBS, {"logprobs": True, "top_logprobs": 2}, {}),
    "stop": ({}, {}, {"stop": [" = "]}),
    "cut": ({"max_output_tokens": 3}, {"max_completion_tokens": 3}, {}),
    "schema": (
        {"text": {"format": {"type": "json_schema", **FORMAT}}, "max_output_tokens": 150},
        {"response_format": {"type": "json_schema", "json_schema": FORMAT}, "max_tokens": 150},
        {},
    ),
    "json": (
        {"text": {"format": {"type": "json_object"}}, "max_output_tokens": 30},
        {"response_format": {"type": "json_object"}, "max_tokens": 30},
        {},
    ),
    "thought": ({}, {}, guided("<think>\nhm\n</think>\n\n42")),
    "no thinking": ({"reasoning": {"effort": "none"}}, {"reasoning_effort": "none"}, {}),
    "required": (
        {"tools": FLAT, "max_output_tokens": 450},
        {"tools": TOOLS, "max_tokens": 450},
        {"tool_choice": "required"},
    ),
    "named": (
        {"tools": FLAT, "tool_choice": {"type": "function", "name": "add"}, "max_output_tokens": 150},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "add"}}, "max_tokens": 150},
        {},
    ),
    "calls": ({"tools": FLAT}, {"tools": TOOLS}, guided(f"Wait! {CALL}\\n{CALL}")),
    "one call": ({"tools": FLAT}, {"tools": TOOLS}, {"parallel_tool_calls": False, **guided(f"{CALL}\\n{CALL}")}),
    "a call between texts": ({"tools": FLAT}, {"tools": TOOLS}, guided(f"Wait! {CALL}\\nDone[.]")),
    "the end of a call and a text at once": (
        {"tools": FLAT},
        {"tools": TOOLS},
        {**guided(f"{CALL}Done[.]"), "stop": ["}}\n</tool_call>Done!"]},  # which holds both back
    ),
    "no tool": ({"tools": FLAT, "tool_choice": "none"}, {"tools": TOOLS, "tool_choice": "none"}, {}),
}


@pytest.mark.parametrize("case", ALIKE)
def test_a_response_says_what_a_chat_says_whole_and_in_a_stream(server, case):
    own, of_chat, both = ALIKE[case]
    wanted = chatted(server, **of_chat, **both)
    assert told(whole(server, **own, **both)) == wanted
    events = streamed(server, **own, **both)
    kind, last = events[-1]["type"], events[-1]["response"]
    assert kind == f"response.{last['status']}"
    assert told(last) == wanted
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == last["output"]
    deltas = [event for event in events if event["type"].endswith(".delta")]
    for index, item in enumerate(last["output"]):
        text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        mine = [event for event in deltas if event["output_index"] == index]
        assert "".join(event["delta"] for event in mine) == text
        assert {event["item_id"] for event in mine} <= {item["id"]}


def test_the_events_of_a_stream_come_in_the_order_of_the_api(server):
    events = streamed(server, tools=FLAT, **guided(f"<think>\nhm</think>\n\nSo {CALL}"))
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert [kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before] == [
        *("created", "in_progress"),
        *("output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done"),
        *("content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.done"),
        *("content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        "completed",
    ]
    items = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    assert (items[2]["name"], items[2]["arguments"], items[2]["status"]) == ("add", "", "in_progress")


def test_a_response_tells_what_was_asked(server):
    fields = {"metadata": {"a": "b"}, "user": "me", "max_output_tokens": 3, "instructions": "Be brief.", "tools": FLAT}
    fields |= {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]}}
    fields |= {"temperature": 0.5, "top_p": 0.5, "parallel_tool_calls": False, "truncation": "disabled"}
    made = whole(server, store=True, background=False, reasoning={"effort": "low", "summary": "auto"}, **fields)
    assert {name: made[name] for name in fields} == fields
    assert (made["store"], made["background"], made["reasoning"]["effort"]) == (False, False, "low")
    assert (made["status"], made["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert made["id"].startswith("resp_")
    assert made["output"][0]["status"] == "incomplete"
    whole(server)
    again = whole(server)["usage"]
    assert again["input_tokens_details"]["cached_tokens"] == again["input_tokens"] - 1
    assert again["total_tokens"] == again["input_tokens"] + again["output_tokens"]


def test_thoughts_are_counted_and_have_no_logprobs(server):
    made = whole(server, **guided("<think>\nhm\n</think>\n\n42"), **LOGPROBS)
    (part,) = made["output"][1]["content"]
    assert "".join(entry["token"] for entry in part["logprobs"]) == part["text"] == "42"
    usage = made["usage"]
    thought = usage["output_tokens_details"]["reasoning_tokens"]
    assert len(part["logprobs"]) <= usage["output_tokens"] - thought <= len(part["logprobs"]) + 1  # and the end
    assert whole(server)["usage"]["output_tokens_details"]["reasoning_tokens"] == 0


def test_the_client_parses_streams_and_answers_of_tools(client):
    class Answer(pydantic.BaseModel):
        right: bool

    asked = {"model": MODEL, "input": QUESTIONS[0]}
    assert client.responses.create(**asked).output_text == "12 + 30 = 42"
    assert isinstance(client.responses.parse(**asked, text_format=Answer).output_parsed, Answer)
    with client.responses.stream(**asked) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert stream.get_final_response().output_text == text == "12 + 30 = 42"
    made = client.responses.create(**asked, tools=FLAT, tool_choice="required", max_output_tokens=450)
    (call,) = made.output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    done = client.responses.create(model=MODEL, input=[*user(QUESTIONS[0]), *made.output, result], tools=FLAT)
    assert done.output_text


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda api: api.retrieve("resp_1"), "/v1/responses/resp_1: responses are not stored"),
        (lambda api: api.delete("resp_1"), "/v1/responses/resp_1: responses are not stored"),
        (lambda api: api.cancel("resp_1"), "/v1/responses/resp_1/cancel: responses are not stored"),
        (lambda api: api.input_items.list("resp_1"), "responses are not stored"),
        (lambda api: api.input_tokens.count(input="a"), "use /tokenize"),
    ],
)
def test_nothing_is_stored(client, ask, message):
    with pytest.raises(openai.NotFoundError, match=message):
        ask(client.responses)


def test_an_answer_that_cannot_go_on_fails_in_the_way_of_the_api(server, client):
    size = server.get("/props").json()["vocab_size"]
    fields = {"logit_bias": {str(token): -100 for token in range(size)}}
    answer = server.post("/v1/responses", json={"model": MODEL, "input": "a", **fields})
    assert (answer.status_code, "forbids all" in answer.text) == (400, True)
    *_, error, failed = streamed(server, **fields)
    assert (error["type"], error["code"], "forbids all" in error["message"]) == ("error", "invalid_value", True)
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"]["code"] == "invalid_prompt"


def test_a_stream_that_takes_too_long_fails_with_what_it_has(start, tmp_path):
    rules = tmp_path / "slow.toml"  # so that the answer does not end before
    rules.write_text('[[fault]]\nkind = "slow"\ndelay_s = 0.02\n')
    server = start("--timeout", "0.5", batch=1, env={"TCIM_LITE_FAULTS": str(rules)})
    *_, done, error, failed = streamed(server, ignore_eos=True)
    assert (done["type"], error["code"]) == ("response.output_item.done", "timeout")
    assert (failed["type"], failed["response"]["error"]["code"]) == ("response.failed", "server_error")
    assert failed["response"]["output"] == [done["item"]]
    assert done["item"]["status"] == "incomplete"


def test_a_client_that_leaves_a_stream_frees_its_slot(server, client):
    stream = client.responses.create(model=MODEL, input=QUESTIONS[0], stream=True, extra_body={"ignore_eos": True})
    next(stream)
    stream.close()
    assert client.responses.create(model=MODEL, input=QUESTIONS[0]).output_text == "12 + 30 = 42"


def test_the_oldest_turns_of_a_long_conversation_are_left_out_where_that_is_allowed(server):
    """Every answer is that of the conversation which is left."""
    turns = [{"role": "user", "content": f"{n} " * 300} for n in range(1, 9)]
    turns = [item for turn in turns for item in (turn, {"role": "assistant", "content": "I see."})]
    last = {"role": "user", "content": QUESTIONS[0]}
    system = {"role": "system", "content": "Be brief."}
    refused = server.post("/v1/responses", json={"input": [*turns, last]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    auto = whole(server, input=[system, *turns, last], truncation="auto", max_output_tokens=40)
    assert auto["truncation"] == "auto"
    for first in range(2, len(turns) + 1, 2):
        answer = server.post("/v1/responses", json={"input": [system, *turns[first:], last], "max_output_tokens": 40})
        if answer.status_code == 200 and answer.json()["usage"]["input_tokens"] + 40 <= CONTEXT:
            break
    assert told(auto) == told(answer.json())
    assert auto["usage"]["input_tokens"] > CONTEXT // 2
    assert told(whole(server, input=[last], truncation="auto")) == told(whole(server, input=[last]))
    # The last turn stays, though an answer of so many tokens has no room then.
    kept = whole(server, input=[*turns, last], truncation="auto", max_output_tokens=10_000)
    assert told(kept) == told(whole(server, input=[last]))
    long = {"role": "user", "content": "1 " * 3000}
    refused = server.post("/v1/responses", json={"input": [*turns, long], "truncation": "auto"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
