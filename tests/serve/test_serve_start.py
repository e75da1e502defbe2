"""What a server refuses before it serves, and what it takes from the system."""

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import warm_python
from warm_python import ISOLATED

from tcim_lite.cli import main
from tcim_lite.serve.run import listen, take_all_files


def command(*arguments, **options):
    return warm_python.run("-m", "tcim_lite", "serve", *arguments, timeout=60, **options)


@pytest.mark.slow  # five programs
def test_what_cannot_be_served_is_one_line(tmp_path, packages, server):
    done = command(tmp_path)
    assert done.returncode == 2
    assert "no compiled package" in done.stderr.splitlines()[-1]
    done = command(packages(4).folder, "--port", urlsplit(server.url).port)
    assert done.returncode == 2
    assert "Address already in use" in done.stderr.splitlines()[-1]
    done = command(packages(4).folder, "--port", 0, "--devices", "a")
    assert (done.returncode, "expected ids such as 0 or 0,1" in done.stderr) == (2, True)
    done = command(packages(4).folder, "--port", 0, "--devices", "0,1,2", "--replicas", 2)
    assert (done.returncode, "3 devices cannot be shared equally" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--max-body-mb", "0", "expected more than 0"),
        ("--max-queue", "-1", "expected 0 or more"),
        ("--prefill-per-decode", "0", "expected at least 1"),
        ("--shutdown-timeout", "-1.0", "expected 0 or more, and finite"),
        ("--stall-timeout", "0.0", "expected more than 0"),
        ("--timeout", "0.0", "expected more than 0"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_by_its_option(packages, capsys, option, value, expected):
    assert main(["serve", str(packages(4).folder), "--port", "0", option, value]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {option} {value}: {expected}"


def test_the_server_imports_neither_torch_nor_transformers(packages):
    program = """if True:
        import sys
        import tcim_lite.serve
        assert "starlette" not in sys.modules
        from tcim_lite.llm.package import Package
        from tcim_lite.serve.options import ServeOptions
        from tcim_lite.serve.run import run
        from tcim_lite.serve.service import Service
        Service.open(Package.open(sys.argv[1]), ServeOptions(model="m")).close()
        print({"torch", "transformers", "jinja2"} & set(sys.modules))
    """
    line = [sys.executable, ISOLATED, "-c", program, str(packages(4).folder)]
    assert subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout == "set()\n"


def test_clients_are_not_bound_by_a_low_soft_limit_of_files():
    program = """if True:
        import resource
        from tcim_lite.serve.run import take_all_files
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
        take_all_files()
        print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))
    """
    line = [sys.executable, ISOLATED, "-c", program]
    assert subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout == "True\n"


def test_a_limit_of_files_that_the_system_refuses_stays(monkeypatch):
    def refuse(*_):
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    take_all_files()


def test_a_server_has_all_files_that_the_system_allows(server):
    files = next(
        line for line in Path(f"/proc/{server.process.pid}/limits").read_text().splitlines() if "open files" in line
    )
    soft, hard = files.split()[3:5]
    assert soft == hard


def test_no_host_is_not_every_address():
    with pytest.raises(ValueError, match="the host is empty"):
        listen("", 0)


def test_no_part_of_a_response_waits_for_the_client_to_acknowledge_another():
    with listen("127.0.0.1", 0) as listener:
        listener.listen()
        listener.settimeout(10)
        with socket.create_connection(listener.getsockname()[:2], 10), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0,1,2"], "is compiled for 2 devices, --devices names 3"),
        pytest.param(
            ["0,1,2", "--replicas", "1"], "is compiled for 2 devices, --devices names 3", marks=pytest.mark.slow
        ),
        (["0,1,2,3,4,5", "--replicas", "2"], "is compiled for 2 devices, --devices names 3 for each of 2 replicas"),
    ],
)
def test_a_package_for_another_number_of_devices_is_refused_with_both_numbers(packages, words, message):
    folder = packages(4, ndevice=2, single_device=False).folder
    done = command(folder, "--port", 0, "--devices", *words, env=os.environ | {"TCIM_LITE_DEVICE_NUM": "6"})
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
