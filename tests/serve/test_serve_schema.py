"""schemathesis over the routes: whatever it sends, no failure of the server, and errors of the promised form."""

import subprocess
import sys

import pytest
from warm_python import ISOLATED


@pytest.mark.slow
def test_schemathesis_finds_nothing(start, tmp_path):
    pytest.importorskip("schemathesis", reason="needs Python 3.11: pip install 'tcim-lite[test]'")
    # An answer without a limit ends with the context: a short one saves steps.
    server = start(env={"TCIM_LITE_STRICT": "off"}, context_length=128)
    command = [sys.executable, ISOLATED, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--seed", "1"]
    command += ["--max-examples", "5", "--phases", "examples,coverage,fuzzing", "--request-timeout", "300"]
    # Schemas cannot say what the vocabulary, the context and other fields rule out.
    command += ["--exclude-checks", "positive_data_acceptance", "--no-color"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.get("/health").json() == {"status": "ok"}
