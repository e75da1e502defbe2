"""`tcim-lite chat` at a pseudo-terminal and behind a pipe."""

import contextlib
import json
import os
import pty
import select
import subprocess
import sys
import time

import pytest
import warm_python
from llm_packages import DEMO_CHECKPOINT, compile_package
from warm_python import ISOLATED

PROMPT = "> "


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return compile_package(DEMO_CHECKPOINT, tmp_path_factory.mktemp("chat") / "demo", quant="w8a8h1_sefp")


def line(package, *arguments):
    return ["-m", "tcim_lite", "chat", str(package.folder), *map(str, arguments)]


def command(package, *arguments):
    return [sys.executable, ISOLATED, *line(package, *arguments)]


def pipe(package, text, *arguments):
    return warm_python.run(*line(package, *arguments), input=text, timeout=120)


class Terminal:
    """The command at a pseudo-terminal.

    Attributes:
        seen: what it has shown since the last `type`.
    """

    def __init__(self, words):
        self._parent, child = pty.openpty()
        environment = {**os.environ, "TERM": "dumb", "TCIM_LITE_STRICT": "error"}
        self.process = subprocess.Popen(
            words, stdin=child, stdout=child, stderr=child, start_new_session=True, env=environment, preexec_fn=own_it
        )
        os.close(child)
        self.seen = ""

    def type(self, text):
        self.seen = ""
        os.write(self._parent, text.encode())

    def until(self, text, seconds=60):
        return self._read(lambda: text in self.seen, seconds)

    def more(self, count):
        wanted = len(self.seen) + count
        return self._read(lambda: len(self.seen) >= wanted)

    def _read(self, is_enough, seconds=60):
        deadline = time.monotonic() + seconds
        while not is_enough():
            assert select.select([self._parent], [], [], max(0, deadline - time.monotonic()))[0], self.seen
            try:
                self.seen += os.read(self._parent, 4096).decode(errors="replace")
            except OSError:  # the end of a terminal
                pytest.fail(f"ended after {self.seen!r}")
        return self.seen

    def ask(self, question):
        """The lines between a question and the next prompt."""
        self.type(f"{question}\n")
        return self.until(f"\n{PROMPT}").splitlines()[1:-1]

    def end(self, text="\x04"):
        self.type(text)
        with contextlib.suppress(OSError):
            while os.read(self._parent, 4096):
                pass
        return self.process.wait(20)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._parent)


def own_it():
    """Makes the terminal that of the new session, so that Ctrl-C typed there is a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(package):
    made = []

    def start(*arguments):
        made.append(Terminal(command(package, *arguments)))
        made[-1].until(PROMPT)
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_a_conversation_remembers_is_saved_and_forgets(terminal, tmp_path):
    chat = terminal()
    assert "context 2048 tokens. /help lists commands, Ctrl-D ends." in chat.seen
    assert chat.ask("My name is Anna.") == ["Nice to meet you, Anna!"]
    assert chat.ask("What is my name?") == ["Your name is Anna."]
    path = tmp_path / "saved.json"
    assert chat.ask(f"/save {path}")[-1] == f"(4 messages in {path})"  # before it, what readline shows of a long line
    assert chat.ask("/save /none/x")[-1] == "error: /none/x: No such file or directory"
    messages = json.loads(path.read_text())
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2
    assert messages[3]["content"] == "Your name is Anna."
    assert chat.ask("/reset") == ["(the conversation is forgotten)"]
    assert "Anna" not in "".join(chat.ask("What is my name?"))
    assert any("/reset" in line for line in chat.ask("/help"))
    assert chat.ask("/nothing")[0] == "/nothing: not a command of this form"
    assert chat.end() == 0


def test_ctrl_c_ends_the_answer_only(terminal):
    chat = terminal("--ignore-eos", "--show-stats")
    chat.type("Hello, who are you?\n")
    chat.until("you?\r\n")
    chat.more(20)  # the answer has begun
    chat.type("\x03")
    text = chat.until(f"\n{PROMPT}")
    assert "(ended)" in text
    generated = int(text.partition("generated_tokens=")[2].split()[0])
    assert 0 < generated < 1500  # the context is 2048
    assert chat.process.poll() is None
    for _ in range(30):  # readline shows the prompt a moment before it listens to signals
        chat.type("\x03")
        with contextlib.suppress(AssertionError):
            chat.until(f"(Ctrl-D or /exit ends the chat)\r\n{PROMPT}", 1)
            break
    assert PROMPT in chat.seen
    assert chat.end("/exit\n") == 0


def test_questions_from_a_pipe(package):
    done = pipe(package, "My name is Anna.\n\nWhat is my name?\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "> My name is Anna.\nNice to meet you, Anna!\n> What is my name?\nYour name is Anna.\n"


def test_a_question_that_is_no_text_is_forgotten(package):
    line = [sys.executable, ISOLATED, "-m", "tcim_lite", "chat", str(package.folder)]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:surrogateescape"}  # as Python sets it in the C locale
    asked = "\udcff\nMy name is Anna.\n".encode(errors="surrogateescape")
    done = subprocess.run(line, input=asked, capture_output=True, timeout=120, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"error: the question is not UTF-8 text\n")
    assert done.stdout.endswith(b"Nice to meet you, Anna!\n")


def test_a_closed_standard_input_is_one_line(package):
    line = f"{sys.executable} {ISOLATED} -m tcim_lite chat {package.folder} <&-"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (2, "error: standard input is closed; there is nothing to read\n")


def test_a_conversation_that_is_too_long_goes_on_without_the_question(package):
    done = pipe(package, f"My name is Anna.\n{'one two ' * 1500}\nWhat is my name?\n", "--show-stats")
    assert done.returncode == 0
    assert "the context holds 2048; shorten it" in done.stderr
    assert "(the question is forgotten; /reset forgets the conversation)" in done.stderr
    assert done.stdout.endswith("Your name is Anna.\n")
    assert done.stderr.count(" tokens_per_second=") == 2


def test_a_reply_is_cut_into_thoughts_and_answer(capsys):
    from tcim_lite.cli.chat import View

    for shows, printed in ((True, "(thinks) one two\n(answers) three\n"), (False, "three\n")):
        view = View("<|im_start|>assistant\n", shows_thoughts=shows)
        for piece in ("<thi", "nk>\none", " two</th", "ink>\n\nth", "ree"):
            view.add(piece)
        view.end()
        assert capsys.readouterr().out == printed
        assert view.content == "three"


def test_an_answer_cannot_command_the_terminal(monkeypatch, capsys):
    from tcim_lite.cli.answering import show

    show("\x1b[31mred\n")
    assert capsys.readouterr().out == "\x1b[31mred\n"  # a file gets what the model said
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    show("\x1b[31mred\t\n")
    assert capsys.readouterr().out == "?[31mred\t\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--top-p", "2"], "top_p=2.0: expected"), (["--devices", "1"], "error: "), (["--batch", "2"], "--batch")],
)
def test_bad_options_end_the_command_at_once(package, words, message):
    done = pipe(package, "Hello\n", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
