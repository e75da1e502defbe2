"""Who may ask: keys, names of the host, pages of other sites; and what other routes and methods answer."""

import httpx2
import openai
import pytest
from serve_live import QUESTIONS, user

CHAT = "/v1/chat/completions"
BODY = {"model": "qwen3", "messages": user(QUESTIONS[0])}


def test_a_key_opens_every_route_but_health_and_the_page(start):
    server = start("--api-key", "first", env={"TCIM_LITE_API_KEY": "secondà"})
    for path in ("/v1/models", "/slots", "/metrics", "/props", "/nowhere"):
        assert server.get(path).status_code == 401
        assert server.get(path, headers={"Authorization": "Bearer firs"}).status_code == 401
        assert server.get(path, headers={"Authorization": "Bearer secondà".encode()}).status_code in (200, 404)
    for path in ("/health", "/"):
        assert server.get(path).status_code == 200
    assert server.post("/", json={"inputs": "a"}).status_code == 401
    with server.client(api_key="wrong") as client, pytest.raises(openai.AuthenticationError, match="a key is needed"):
        client.models.list()
    with server.client(api_key="first") as client:
        assert client.chat.completions.create(**BODY).choices[0].message.content == "12 + 30 = 42"
    assert not any("first" in line or "second" in line for line in server.log)


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("LOCALHOST:80", 200), ("127.0.0.1:1", 200), ("[::1]:80", 200), ("rebound.example:80", 403)],
)
def test_a_site_whose_name_leads_here_reads_nothing(server, host, status):
    answer = server.get("/v1/models", headers={"Host": host})
    assert answer.status_code == status
    if status == 403:
        assert "'rebound.example:80' is not this machine" in answer.json()["error"]["message"]


def test_pages_of_other_sites_may_ask_where_the_server_names_them(start, server):
    asked = {"Origin": "https://chat.example", "Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "authorization, content-type, x-stainless-os"
    preflight = httpx2.options(server.url + CHAT, headers=asked)
    assert preflight.status_code == 405
    assert not any(name.startswith("access-control") for name in preflight.headers)

    named = start("--cors-origin", asked["Origin"], "--api-key", "sesame")
    preflight = httpx2.options(named.url + CHAT, headers=asked)
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, asked["Origin"])
    assert "x-stainless-os" in preflight.headers["access-control-allow-headers"]
    refused = named.post(CHAT, json=BODY, headers={"Origin": asked["Origin"]})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, asked["Origin"])
    assert httpx2.options(named.url + CHAT, headers={**asked, "Origin": "https://other.example"}).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "meant"),
    [
        ("post", "/chat/completions", "/v1/chat/completions"),
        ("post", "/v1/v1/chat/completions", "/v1/chat/completions"),
        ("post", "/completions", "/v1/completions"),
        ("post", "/responses", "/v1/responses"),
        ("get", "/models", "/v1/models"),
    ],
)
def test_a_base_url_without_v1_or_with_two_is_told_so(server, method, path, meant):
    answer = httpx2.request(method, server.url + path)
    assert answer.status_code == 404
    assert f"did you mean {meant}? The base URL" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/completion", "/v1/completions"),
        ("/embedding", "/v1/embeddings"),
    ],
)
def test_a_client_of_another_api_is_told_what_to_use(server, path, meant):
    for answer in (server.post(path, json={}), server.get(path)):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unsupported_route")
        assert meant in answer.json()["error"]["message"]


@pytest.mark.parametrize("method", ["get", "put", "delete"])
def test_other_methods_and_routes_have_error_objects(server, method):
    answer = httpx2.request(method, server.url + CHAT)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "takes no" in answer.json()["error"]["message"]
    answer = httpx2.request(method, server.url + "/v2/none")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")
