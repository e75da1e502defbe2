"""The pytest plugin behind `--tcim-strict`: a finding of strict mode fails the test that caused it."""

from __future__ import annotations

from collections.abc import Generator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tcim_lite").addoption(
        "--tcim-strict",
        action="store_true",
        help="fail tests that break a rule of the tcim_lite runtime (docs/strict.md)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--tcim-strict"):
        config.pluginmanager.register(_Strict(), "tcim_strict")


class _Strict:
    """Only logs while a test runs, so that tests of errors see the errors they expect."""

    def pytest_sessionstart(self) -> None:
        from tcim_lite import layers

        layers.enable("strict", mode="warn")

    def pytest_sessionfinish(self) -> None:
        from tcim_lite import layers

        layers.disable("strict")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        from tcim_lite import layers

        try:
            result = yield
        except BaseException:
            layers.take_findings()
            raise
        # What fixtures did before the test belongs to it too.
        found = layers.take_findings()
        if found:
            pytest.fail("\n".join(finding.message for finding in found), pytrace=False)
        return result
