"""A runtime for the tests of the runner: it can do next to nothing, and FAKE says how it goes wrong.

Its behaviour shows in `RunOption(0)`, which a runtime has to refuse, and in `get_version`, by `FAKE`:
good, fail, crash, exit, hang, flaky, unusable. FAKE_FOLDER is where it remembers across processes.
"""

import os
import signal
import tempfile
import time
from pathlib import Path

FAKE = os.environ.get("FAKE", "good")
if FAKE == "unusable":
    os.abort()


def get_version():
    return "no version at all" if FAKE == "unversioned" else "v1.4.2\nfake"


def get_device_num(backend_name=""):
    return 1


class RunOption:
    def __init__(self, rounds):
        if rounds >= 1:
            return
        if FAKE == "crash":
            print("about to crash", flush=True)
            tempfile.mkdtemp()
            os.kill(os.getpid(), signal.SIGSEGV)
        if FAKE == "exit":
            os._exit(0)
        if FAKE == "hang":
            if os.fork() == 0:  # a grandchild that holds the runner's pipe open
                time.sleep(600)
            time.sleep(600)
        if FAKE == "flaky":
            marker = Path(os.environ["FAKE_FOLDER"]) / "was here"
            if not marker.exists():
                marker.touch()
                return
        if FAKE != "fail":
            raise ValueError(f"rounds={rounds}")
