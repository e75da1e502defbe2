"""The pytest plugin: `--tcim-strict`, the fixture `tcim_faults`, and recordings as test cases.

With `--tcim-strict`, a finding of strict mode fails the test that caused it. A file `NAME.tcimrec` among the arguments
is a test that replays it bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tcim_lite.faults import Injection


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tcim_lite").addoption(
        "--tcim-strict",
        action="store_true",
        help="fail tests that break a rule of the tcim_lite runtime (docs/strict.md)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--tcim-strict"):
        config.pluginmanager.register(_Strict(), "tcim_strict")


@pytest.fixture
def tcim_faults() -> Generator[Callable[..., Injection], None, None]:
    """`tcim_lite.faults.inject`, which ends with the test. A rule that never did anything fails the test."""
    from tcim_lite import faults

    made: list[Injection] = []

    def inject(*rules: faults.Rule, **rule: str | int | float | bool) -> Injection:
        end()
        made.append(faults.inject(*rules, **rule))
        return made[-1]

    def end() -> None:
        if not made:
            return
        injection = made.pop()
        injection.stop()
        if injection.unfired:
            pytest.fail(f"these rules never did anything: {injection.unfired}", pytrace=False)

    yield inject
    end()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != ".tcimrec":
        return None
    collector: pytest.Collector = _RecordingFile.from_parent(parent, path=file_path)
    return collector


class _RecordingFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield _ReplayItem.from_parent(self, name="replay")


class _ReplayItem(pytest.Item):
    def runtest(self) -> None:
        from tcim_lite.replay import assert_replays

        assert_replays(self.path)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"replay: {self.path.name}"


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
