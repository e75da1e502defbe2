"""Two processes of eight threads that load, run, share, fork and drop, in bounded memory (../soak.py)."""

import json
import statistics
from pathlib import Path

from .. import stress
from .. import under_test as rt
from ..registry import seconds, tier

PROGRAM = Path(__file__).parents[1] / "soak.py"
DURATION = 1800.0


def soak(kit, duration, seed):
    """Runs it and holds its samples to bounds; the report has some of them."""
    paths = [kit.model(role) for role in ("llm_prefill", "llm_decode", "llm_verify")]
    forks = "forks" if rt.emulates_on_cpu() else "no-forks"
    printed = kit.run_script(
        PROGRAM.read_text(encoding="utf-8"),
        rt.name(),
        duration,
        seed,
        forks,
        *paths,
        prelude=False,
        seconds=duration * 2 + 300,
    )
    processes = [json.loads(line) for line in printed.splitlines()]
    for process in processes:
        assert not process["failures"], f"seed {seed}:\n" + "\n".join(process["failures"])
        assert all(sample["cycles"] > 0 for sample in process["samples"])
        assert forks == "no-forks" or process["children"] > 0
    assert len({process["answers"] for process in processes}) == 1, "two processes compute different answers"
    for number, process in enumerate(processes):
        who = f"process {number}, {process['cycles']} cycles and {process['children']} children"
        check(kit, who, process["samples"])


def check(kit, who, samples):
    """No growth once everything was in use: after the first sixth."""
    settled = samples[len(samples) // 6 :]
    resident = [sample["resident"] for sample in settled]
    for sample in settled[:: max(1, len(settled) // 6)]:
        kit.measure(f"{who}: resident MiB at minute {sample['minute']:.1f}", sample["resident"], resident[0] + 24)
    third = max(1, len(resident) // 3)
    slope = statistics.median(resident[-third:]) - statistics.median(resident[:third])
    kit.measure(f"{who}: growth of the resident memory from the first to the last third, MiB", slope, 12)
    for what in ("threads", "descriptors", "device"):
        numbers = [sample[what] for sample in settled if sample[what] is not None]
        if numbers:
            kit.measure(f"{who}: growth of {what}", max(numbers) - numbers[0], 0)


@tier("full")
@seconds(300)
def test_a_short_soak_answers_right_and_holds_nothing(kit):
    soak(kit, 3, 1)


@tier("stress")
@seconds(stress.seconds(DURATION) * 2 + 400)
def test_a_long_soak_answers_right_and_holds_nothing(kit):
    soak(kit, stress.seconds(DURATION), stress.first_seed())
