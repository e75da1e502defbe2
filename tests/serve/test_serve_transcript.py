"""Transcripts of Whisper in each form, from the text of its windows."""

from __future__ import annotations

import pytest

from tcim_lite.llm.sounds.windows import Segment
from tcim_lite.serve.protocol import TranscriptionRequest
from tcim_lite.serve.transcript import TranscriptWriter, WindowText
from tcim_lite.serve.usage import UsageCount


def writer(form: str) -> TranscriptWriter:
    """Of a sound of four seconds; two of the pieces end where they begin, one of them behind the end of the sound."""
    times = [(0.0, 1.5), (1.5, 1.5), (1.5, 4.0), (4.02, 4.5)]
    pieces = [(Segment(begin, end, (7,)), f" piece {i}") for i, (begin, end) in enumerate(times)]
    figures = {"temperature": 0.0, "mean_logprob": -0.1, "compression_ratio": 1.0, "no_speech": None}
    text = WindowText(pieces, seconds=4.0, seek=0, **figures)
    request = TranscriptionRequest(file=b"", response_format=form)
    return TranscriptWriter(request, "en", "transcribe", [text], 4.0, UsageCount([1], 1), may_be_cut=True)


def test_pieces_without_length_are_no_subtitles():
    srt, vtt = writer("srt").plain(), writer("vtt").plain()
    assert srt == ("1\n00:00:00,000 --> 00:00:01,500\npiece 0\n\n2\n00:00:01,500 --> 00:00:04,000\npiece 2\n")
    assert [line for line in vtt.splitlines() if "-->" in line] == [
        "00:00:00.000 --> 00:00:01.500",
        "00:00:01.500 --> 00:00:04.000",
    ]


@pytest.mark.parametrize("form", ["json", "text", "verbose_json"])
def test_their_words_are_in_the_text(form):
    made = writer(form)
    assert (made.plain() if form == "text" else made.body()["text"]) == "piece 0 piece 1 piece 2 piece 3"
    if form == "verbose_json":
        assert len(made.body()["segments"]) == 4
