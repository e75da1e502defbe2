"""Stop strings: what is shown of the text before them, token by token."""

from hypothesis import given
from hypothesis import strategies as st

from tcim_lite.llm.engine.answer_text import AnswerText


class Letters:
    """Token 0 is "a", token 1 is "b"; from 256 on, bytes of UTF-8."""

    def decode(self, ids, skip_special_tokens=True):
        return bytes(i - 256 if i > 255 else i + 97 for i in ids).decode("utf-8", "replace")


@given(st.lists(st.integers(0, 1), max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_text_before_the_first_stop_string_is_shown_and_nothing_else(tokens, stop):
    text = Letters().decode(tokens)
    shown, found, answer = "", None, AnswerText(Letters(), stop)
    for token in tokens:
        piece, found = answer.add(token)
        shown += piece
        assert text.startswith(shown)
        if found:
            break
    ends = [text.find(word) + len(word) for word in stop if word in text]
    if not ends:
        assert (shown + answer.rest(), found) == (text, None)
    else:
        assert len(shown) + len(found) <= min(ends)
        assert text.startswith(shown + found)
        assert not any(word in shown for word in stop)


@given(
    st.lists(st.integers(0, 1), max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.integers(0, 10),
)
def test_a_stop_string_ends_an_answer_only_if_it_is_complete_after_min_tokens(tokens, stop, least):
    text = Letters().decode(tokens)
    lengths = [n for n in range(least + 1, len(text) + 1) if text[:n].endswith(tuple(stop))]
    shown, found, answer = "", None, AnswerText(Letters(), stop)
    for number, token in enumerate(tokens, 1):
        piece, found = answer.add(token, may_end=number > least)
        shown += piece
        if found:
            break
    if lengths:
        seen = text[: lengths[0]]
        assert shown + found == seen
        assert found == max((word for word in stop if seen.endswith(word)), key=len)
    else:
        assert (shown + answer.rest(), found) == (text, None)


def test_half_a_character_is_held_back_and_shown_at_the_end():
    answer = AnswerText(Letters(), ["xyz"])
    first, second, third = (byte + 256 for byte in "好".encode())
    assert [answer.add(token)[0] for token in (0, first, second, third)] == ["a", "", "", "好"]
    answer.add(first)
    assert answer.rest() == "\N{REPLACEMENT CHARACTER}"
