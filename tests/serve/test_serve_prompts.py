"""From conversations to prompts: chat templates and the tokenizer of a package, which need no model."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from llm_packages import DEMO_CHECKPOINT

from tcim_lite.llm import load_tokenizer
from tcim_lite.serve import chat_template
from tcim_lite.serve.chat import prompt_text
from tcim_lite.serve.chat_template import ChatTemplate, TemplateError
from tcim_lite.serve.protocol import Message, Tool
from tcim_lite.serve.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def demo():
    return Vocabulary(DEMO_CHECKPOINT)


TEXTS = ["12 + 30 = 42", " a  b\n\n", "7加5等于多少？", "<|im_start|>user\nx<|im_end|>", "é😀"]


@pytest.mark.oracle
def test_the_vocabulary_agrees_with_transformers(demo):
    other = load_tokenizer(DEMO_CHECKPOINT)
    assert demo.eos_token_id == other.eos_token_id
    for text in TEXTS:
        ids = demo.encode(text, special=True)
        assert ids == other(text)["input_ids"]
        assert demo.decode(ids) == other.decode(ids, skip_special_tokens=True)
        assert b"".join(map(demo.token_bytes, ids)).decode() == text


# What decides in Qwen3's template: tools as JSON, calls and their results, thinking.
TEMPLATE = """{%- if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>{% endif %}
{%- for message in messages %}{{ message.role }}: {{ message.content.strip() }}
{%- for call in message.tool_calls or [] %}<{{ call.function.name }} {{ call.function.arguments | tojson }}>
{%- endfor %};
{%- if loop.last %}{% break %}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{% generation %}A:{% endgeneration %}
{%- if enable_thinking is defined and not enable_thinking %}{{ eos_token }}{% endif %}{% endif %}"""


def messages(*given):
    return msgspec.convert(given, list[Message])


def test_a_template_sees_what_transformers_would_show_it(demo):
    template = ChatTemplate(TEMPLATE, demo.special)
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": "é"}'}}
    talk = messages(
        {"role": "developer", "content": [{"type": "text", "text": " Be "}, {"type": "text", "text": "brief "}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "3", "tool_call_id": "1"},
    )
    tools = msgspec.convert([{"type": "function", "function": {"name": "add"}}], list[Tool])
    text = prompt_text(template, talk, tools, {"enable_thinking": False})
    assert text == (
        '<tools>{"function": {"name": "add"}, "type": "function"}</tools>'
        'system: Be brief;assistant: <add {"a": "é"}>;tool: 3;A:<|im_end|>'
    )
    thoughts = ChatTemplate("{{ messages | map(attribute='reasoning_content') | join(' ') }}", {})
    told = [{"role": "assistant", "content": "", name: "hm"} for name in ("reasoning_content", "reasoning")]
    assert prompt_text(thoughts, messages(*told)) == "hm hm"
    thoughts.close()
    own = ChatTemplate.of(DEMO_CHECKPOINT, demo)
    turns = [{"role": "user", "content": "12 + 30?"}]
    ids = load_tokenizer(DEMO_CHECKPOINT).apply_chat_template(turns, add_generation_prompt=True, return_dict=True)
    assert demo.encode(prompt_text(own, messages(*turns)), special=False) == ids["input_ids"]
    for made in (template, own):
        made.close()


@pytest.mark.parametrize("said", ["e", "<|im_end|>", "m_", " a b ", "A:"])
@pytest.mark.parametrize("trimmed", ["", " | trim"])
def test_the_last_message_ends_where_it_ended(demo, said, trimmed):
    """Its words may be those that the template puts behind it."""
    source = f"{{% for m in messages %}}{{{{ m.role }}}}: {{{{ m.content{trimmed} }}}}<|im_end|>A:{{% endfor %}}"
    template = ChatTemplate(source, demo.special)
    text = prompt_text(template, messages({"role": "assistant", "content": said}), begins_reply=False, goes_on=True)
    assert text == f"assistant: {said.strip() if trimmed else said}"
    template.close()


def test_a_template_comes_from_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for file in (tmp_path / "fifo", "/dev/zero"):
        with pytest.raises(ValueError, match=f"{file}: is not a regular file; give the path of a file"):
            ChatTemplate.of(tmp_path, SimpleNamespace(special={}), Path(file))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{% for i in range(10 ** 9) %}x{% endfor %}", "OverflowError: Range too big|takes longer"),
        ("{{ 10 ** (10 ** 10) }}", "takes longer than 1 s|needs too much memory"),
        ("{{ 'x' * (2 ** 40) }}", "more than 512 MiB of memory"),
        ("{{ 'x' * (2 ** 20 + 1) }}", "more than 1 MiB"),
        ("{% if %}", "TemplateSyntaxError"),
    ],
)
def test_a_hostile_template_is_an_error_within_limits(monkeypatch, source, message):
    assert chat_template._MOST_OUTPUT_BYTES == 64 << 20
    monkeypatch.setattr(chat_template, "_MOST_OUTPUT_BYTES", 1 << 20)  # 64 MiB take seconds
    template = ChatTemplate(source, {}, seconds=1 if "takes longer" in message else 10)
    begun = time.monotonic()
    for _ in range(2):  # the child is there again
        with pytest.raises(TemplateError, match=message):
            template.render({"messages": []})
    assert time.monotonic() - begun < 20
    template.close()
