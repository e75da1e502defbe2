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
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        _take()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from _explained(item, "setup"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        result = yield from _explained(item, "call")
        found = _take()  # what fixtures did before the test belongs to it too
        if found:
            pytest.fail(found, pytrace=False)
        return result


def _take() -> str:
    from tcim_lite import layers

    return "\n".join(finding.message for finding in layers.take_findings())


def _explained(item: pytest.Item, when: str) -> Generator[None, object, object]:
    """What failed by itself may have done so because of a finding."""
    try:
        return (yield)
    except BaseException:
        found = _take()
        if found:
            item.add_report_section(when, "findings of strict mode", found)
        raise
