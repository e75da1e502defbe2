"""Random sequences of calls against a model of the contract (api_model.py), found and shortened by hypothesis."""

import importlib
import os

from .. import stress
from .. import under_test as rt
from ..checks import NotRunError
from ..registry import seconds, tier

STEPS = 60  # calls of a sequence, at most
DURATION = 600.0


def search(kit, examples, seed=None):
    """Tries so many sequences; without a seed always the same ones. An AssertionError shows the shortest bad one."""
    try:
        hypothesis = importlib.import_module("hypothesis")
    except ImportError as error:
        raise NotRunError(f"needs hypothesis (pip install hypothesis): {error}") from None
    stateful = importlib.import_module("hypothesis.stateful")
    machine = importlib.import_module("..api_machine", __package__).machine(kit, rt.is_emulator())
    phases = [hypothesis.Phase.generate]
    if not os.environ.get("TCIM_LITE_STRICT"):  # what strict mode reports is waived, not looked into
        phases.append(hypothesis.Phase.shrink)
    settings = hypothesis.settings(
        phases=phases,
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        derandomize=seed is None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    if seed is not None:
        machine = hypothesis.seed(seed)(machine)
    stateful.run_state_machine_as_test(machine, settings=settings)


@tier("full")
@seconds(300)
def test_some_sequences_do_what_the_model_says(kit):
    search(kit, 100)


@tier("stress")
@seconds(stress.seconds(DURATION) + 600)
def test_random_sequences_do_what_the_model_says(kit):
    tried = 0
    for seed in stress.seeds(DURATION):
        try:
            search(kit, 100, seed)
        except NotRunError:
            raise
        except Exception as error:
            raise AssertionError(f"seed {seed}: again with --only sequences --seed {seed} --seconds 1") from error
        tried += 100
    kit.measure(f"bad ones of {tried} random sequences of up to {STEPS} calls", 0, 0)
