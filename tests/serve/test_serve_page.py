"""The page at /, in a headless browser where there is one."""

import shutil
import subprocess
from urllib.parse import quote

import pytest
from serve_live import QUESTIONS

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def test_the_page_needs_nothing_from_elsewhere(server):
    page = server.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "://" not in page.text


@pytest.mark.skipif(BROWSER is None, reason="no chromium")
def test_the_page_chats_and_shows_slots(server, tmp_path):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command += ["--virtual-time-budget=4000", "--dump-dom", f"{server.url}/#q={quote(QUESTIONS[0])}"]
    page = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert '<div class="user">What is 12 + 30?</div>' in page
    assert '<div class="assistant">12 + 30 = 42</div>' in page
    assert '<h1 id="model">qwen3</h1>' in page
    assert page.count('<div class="slot ') == 4
    assert "idle, " in page
