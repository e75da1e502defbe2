"""The Grafana board asks for what the server exposes: names, labels, and all of it."""

import json
import re
from pathlib import Path

BOARD = Path(__file__).parent.parent.parent / "docs" / "dashboards" / "grafana.json"


def test_the_board_asks_for_what_the_server_exposes(server):
    exposed: dict[str, set[str]] = {}
    for line in server.get("/metrics").text.splitlines():
        if not line.startswith("#"):
            name, labels = re.match(r"([\w:]+)(?:\{(.*)\})? ", line).groups()
            exposed.setdefault(name, set()).update(re.findall(r'(\w+)="', labels or ""))
    board = json.loads(BOARD.read_text())
    asked = set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            names = re.findall(r"(tcim:\w+)\{", target["expr"])
            assert names
            assert set(names) <= exposed.keys(), panel["title"]
            labels = set(re.findall(r"(\w+)=~", target["expr"]))
            for group in re.findall(r"by \((.*?)\)", target["expr"]):
                labels |= set(group.split(", "))
            assert all(labels <= exposed[name] for name in names), panel["title"]
            asked |= set(names)
    for variable in board["templating"]["list"]:
        for name, label in re.findall(r"label_values\(([\w:]+), (\w+)\)", variable["query"]):
            assert label in exposed[name]
    # A histogram's buckets stand for its sum and count; when a series began is nothing to look at.
    rest = {name for name in exposed if not name.endswith(("_created", "_sum", "_count"))} - asked
    assert rest == set()
