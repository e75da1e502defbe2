"""Which turns of a long conversation are left out; a message counts its characters as tokens here."""

import pytest

from tcim_lite.serve.errors import ApiError
from tcim_lite.serve.protocol import Message
from tcim_lite.serve.truncation import prompt_within

ROLES = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}


def kept(form: str, room: int, most: int = 100) -> tuple[str, int]:
    """The messages that are left of those with the roles of `form`, and how many prompts were made."""
    count = 0

    def prompt_of(messages):
        nonlocal count
        count += 1
        text = "".join(message.content for message in messages)
        if len(text) > most:
            raise ApiError(400, "too long", code="context_length_exceeded")
        return text, list(range(len(text)))

    messages = [Message(role=ROLES[role], content=role) for role in form]
    return prompt_within(messages, prompt_of, room)[0], count


@pytest.mark.parametrize(
    ("form", "room", "left"),
    [
        ("suaua", 5, "suaua"),
        ("suaua", 4, "sua"),
        ("suatatua", 5, "sua"),
        ("uatatua", 2, "ua"),
        ("uatatua", 1, "ua"),  # the last turn stays
        ("aauaua", 5, "uaua"),
        ("suasua", 4, "ssua"),
        ("suasuauda", 6, "ssuda"),
        ("sdu", 1, "sdu"),
        ("u", 0, "u"),
        ("saaa", 1, "saaa"),
        ("uuuu", 2, "uu"),
        ("", 1, ""),
    ],
)
def test_whole_turns_are_left_out_the_oldest_first(form, room, left):
    assert kept(form, room)[0] == left


def test_few_prompts_are_made():
    assert kept("ua" * 500, 1000, 2000) == ("ua" * 500, 1)
    text, count = kept("ua" * 500, 100)
    assert text == "ua" * 50
    assert count <= 12


def test_a_last_turn_beyond_the_context_is_refused():
    with pytest.raises(ApiError, match="too long"):
        kept("ua" * 10 + "u" + "a" * 200, 50)


def test_what_the_template_refuses_is_told():
    def refuse(messages):
        raise ApiError(400, "roles must alternate", code="chat_template")

    with pytest.raises(ApiError, match="roles must alternate"):
        prompt_within([Message(role="user", content="a")] * 3, refuse, 1)
