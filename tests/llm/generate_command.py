"""`tcim-lite generate` as a program and in this process."""

import json
import os

import warm_python

from tcim_lite.cli import main

QUESTION = "What is 12 + 30?"


def run(*arguments, stdin=None, **environment):
    environment = {**os.environ, "TCIM_LITE_STRICT": "error", **environment}
    return warm_python.run("-m", "tcim_lite", "generate", *arguments, input=stdin, env=environment)


def in_process(capfd, *arguments):
    """The JSON object of a command that works."""
    status = main(["generate", *map(str, arguments), "--json"])
    printed, errors = capfd.readouterr()
    assert status == 0, errors
    return json.loads(printed)
