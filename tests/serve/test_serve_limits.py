"""Limits and ends: bodies, the queue, clients that leave or read slowly, signals."""

import contextlib
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

import httpx2
import openai
import pytest
from serve_live import ENDLESS, QUESTIONS, user
from warm_python import ISOLATED

from tcim_lite.faults import rules_text

CHAT = "/v1/chat/completions"


def body(text=QUESTIONS[0], **options):
    return {"model": "qwen3", "messages": user(text), **options}


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def connect(server, payload: dict, receive_buffer: int | None = None) -> socket.socket:
    """A connection that sent a POST to the chat route."""
    url, made = urlsplit(server.url), socket.socket()
    if receive_buffer is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    made.connect((url.hostname, url.port))
    data = json.dumps(payload).encode()
    lines = [
        f"POST {CHAT} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
    ]
    made.sendall("\r\n".join([*lines, "", ""]).encode() + data)
    return made


@pytest.mark.parametrize("options", [{}, {"stream": True}], ids=["whole", "stream"])
def test_a_client_that_leaves_frees_its_slot_within_a_step(start, options):
    server = start(batch=1)
    connection = connect(server, body(**ENDLESS, **options))
    until(lambda: server.metric("tcim:num_requests_running") == 1)
    connection.close()
    until(lambda: server.metric("tcim:num_requests_running") == 0)
    assert server.metric("tcim:request_success_total") == 1
    assert 'finished_reason="abort",model_name="qwen3"} 1.0' in server.get("/metrics").text
    server.stop()
    said = [text for line in server.log for text in line.split(": ", 1)[1:] if "tcim_lite.serve" in line]
    assert said[0].startswith("a client has left"), said
    assert not any("503" in text for text in said)


def test_a_reader_that_stalls_stops_nobody(server):
    options = {"stream": True, "n": 4, "logprobs": True, "top_logprobs": 20, **ENDLESS, "max_tokens": 400}
    stalled = connect(server, body(**options), receive_buffer=4096)  # megabytes that nobody takes
    with server.client() as client:
        done = client.chat.completions.create(**body())
        assert done.choices[0].message.content == "12 + 30 = 42"
    stalled.close()


def test_a_client_that_takes_nothing_is_given_up(start):
    server = start("--stall-timeout", "0.5", "--log-level", "info")
    options = {"stream": True, "n": 4, "logprobs": True, "top_logprobs": 20, **ENDLESS}
    connection = connect(server, body(**options), receive_buffer=4096)
    until(lambda: any("took nothing for 0.5 s" in line for line in server.log), 30)
    connection.close()
    server.stop()


def test_bodies_have_a_limit_and_a_type(start):
    server = start("--max-body-mb", "0.01")
    large = server.post(CHAT, json=body("x" * 20_000))
    assert (large.status_code, large.json()["error"]["code"]) == (413, "body_too_large")
    assert "is larger than the 10485 bytes that the server takes" in large.text
    assert "--max-body-mb" in large.text

    def pieces():
        yield from (b"x" * 1000 for _ in range(20))

    chunked = server.post(CHAT, content=pieces(), headers={"Content-Type": "application/json"})
    assert chunked.status_code == 413
    form = server.post(CHAT, content=json.dumps(body()), headers={"Content-Type": "text/plain"})
    assert (form.status_code, "send 'Content-Type: application/json'" in form.text) == (415, True)
    packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = server.post(CHAT, content=gzip.compress(json.dumps(body()).encode()), headers=packed)
    assert (answer.status_code, "content-encoding is gzip" in answer.text) == (415, True)


def test_a_client_writes_no_lines_of_the_log(server):
    assert server.post(CHAT, json=body(**{"a\nERROR forged \x1b[2J": 1})).status_code == 400
    until(lambda: any("forged" in line for line in server.log))
    assert not [line for line in server.log if line.startswith("ERROR forged") or "\x1b" in line]


def test_an_answer_that_takes_too_long_ends_with_an_error(start):
    server = start("--timeout", "0.2")
    answer = server.post(CHAT, json=body(**ENDLESS, n=8))
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
    assert answer.headers["x-should-retry"] == "false"
    with server.client() as client, pytest.raises(openai.APIError, match="longer than the server's limit"):
        list(client.chat.completions.create(**body(n=8, stream=True), extra_body=ENDLESS))
    until(lambda: server.metric("tcim:num_requests_running") == 0)


def test_a_request_on_a_card_in_trouble_ends_with_an_error_and_the_next_is_answered(start, server, tmp_path):
    rules = [{"kind": "reset"}, {"kind": "hang", "nth": 40, "timeout_s": 0.2}]
    (tmp_path / "rules.toml").write_text(rules_text(rules))
    troubled = start(env={"TCIM_LITE_FAULTS": str(tmp_path / "rules.toml")})

    def ask(served):
        return served.post(CHAT, json=body(temperature=0, max_tokens=20))

    first = ask(troubled)
    assert (first.status_code, first.json()["error"]["code"]) == (500, "engine_error")
    assert "device 0 was reset meanwhile" in first.json()["error"]["message"]
    assert ask(troubled).json()["choices"] == ask(server).json()["choices"]
    messages = [answer.json()["error"]["message"] for answer in (ask(troubled) for _ in range(5)) if answer.is_error]
    assert messages
    assert all("(ret:110)" in message for message in messages)


def test_sigterm_lets_answers_end_and_takes_no_more(start):
    server = start("--shutdown-timeout", "60", batch=1)
    answers = {}

    def ask(name):
        answers[name] = server.post(CHAT, json=body(ignore_eos=True, max_tokens=40, n=20)).json()

    def is_asked():  # of one scrape, and with what has ended: a stopped machine may see none wait
        return server.metric("tcim:(?:num_requests_running|num_requests_waiting|request_success_total)") >= 40

    threads = [threading.Thread(target=ask, args=(name,)) for name in "ab"]  # one runs, one waits
    keeper = httpx2.Client(base_url=server.url)  # an open connection does not hold the server up
    assert keeper.get("/health").json() == {"status": "ok"}
    for thread in threads:
        thread.start()
    until(is_asked)
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(60)
    assert {answers[name]["usage"]["completion_tokens"] for name in "ab"} == {800}
    assert server.process.wait(60) == 0
    with pytest.raises(httpx2.TransportError):
        server.get("/health")
    keeper.close()


def test_clients_that_ask_without_pause_are_answered_or_refused_at_the_signal(start):
    server = start()
    payload, ends = json.dumps({"prompt": "1", "max_tokens": 1}), []

    def ask():
        try:
            while True:
                with contextlib.closing(HTTPConnection(urlsplit(server.url).netloc, timeout=60)) as connection:
                    connection.request("POST", "/v1/completions", payload, {"Content-Type": "application/json"})
                    assert connection.getresponse().status in (200, 503)
        except OSError as error:
            ends.append(type(error))

    threads = [threading.Thread(target=ask) for _ in range(24)]
    for thread in threads:
        thread.start()
    until(lambda: server.metric("tcim:request_success_total") > 24)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    for thread in threads:
        thread.join(60)
    assert ends.count(ConnectionRefusedError) >= 20  # the kernel may take a connection or two in the last moment


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_what_does_not_end_in_time_is_refused_cleanly(start, tmp_path, number):
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("ignored, as nohup has it, and so by the server")
    (tmp_path / "rules.toml").write_text(rules_text([{"kind": "slow", "delay_s": 0.02}]))
    server = start("--shutdown-timeout", "0.2", batch=1, env={"TCIM_LITE_FAULTS": str(tmp_path / "rules.toml")})
    codes = []

    def ask():
        answer = server.post(CHAT, json=body(**ENDLESS))
        codes.append((answer.status_code, answer.headers.get("retry-after")))

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: server.metric("tcim:num_requests_running") == 1)
    server.process.send_signal(number)
    thread.join(30)
    assert codes == [(503, "5")], "".join(server.log)
    assert server.process.wait(30) == 0


def test_a_server_whose_first_line_nobody_reads_ends_without_a_traceback(packages):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, ISOLATED, "-m", "tcim_lite", "serve", str(packages(4).folder), "--port", "0"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr


def test_information(server):
    slots = server.get("/slots").json()
    assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
    assert server.get("/props").json()["total_slots"] == 4
    assert "im_start" in server.get("/props").json()["chat_template"]
    assert server.get("/version").json()["version"]
    text = "12 + 30 = 42, 7加5 <|im_end|>"
    tokens = server.post("/tokenize", json={"content": text}).json()["tokens"]
    assert server.post("/detokenize", json={"tokens": tokens}).json()["content"] == text
    chat = server.post("/tokenize", json={"messages": user("hi")}).json()
    assert (
        server.post("/detokenize", json={"tokens": chat["tokens"]}).json()["content"].startswith("<|im_start|>user\nhi")
    )
    prompt = server.post("/apply-template", json={"messages": user("hi")}).json()["prompt"]
    assert server.post("/tokenize", json={"prompt": prompt}).json()["tokens"] == chat["tokens"]
    assert server.post("/apply-template", json={"messages": []}).status_code == 400
    assert server.post("/tokenize", json={}).status_code == 400
    assert server.post("/detokenize", json={"tokens": [10**30]}).status_code == 400
    given = server.get("/health", headers={"X-Request-Id": "mine-1"})
    assert given.headers["x-request-id"] == "mine-1"
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"):
        assert f"tcim:{name}_bucket" in server.get("/metrics").text
