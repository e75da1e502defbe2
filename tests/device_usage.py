"""What `tcim-lite smi` prints of a process, and the descriptors where it looks."""

import json
import os

import warm_python


def smi(**environment):
    """What `tcim-lite smi --json` prints in a process of its own."""
    done = warm_python.run("-m", "tcim_lite.cli", "smi", "--json", timeout=60, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def lines_of(pid):
    return [line for line in smi()["processes"] if line["pid"] == pid]


def usage_links(pid):
    """The descriptors that smi looks for."""
    links = [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    return [link for link in links if os.path.lexists(link) and "memfd:tcim_lite" in os.readlink(link)]
