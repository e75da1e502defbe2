"""Injected faults: every kind in every call. No crash, no hang, documented errors, and after a reset all is as before.

Rules are the emulator's own (TCIM_LITE_FAULTS), so other runtimes are not asked.
"""

from ..checks import emulator_only
from ..registry import each, seconds

TIER = "full"

# Calls that need a device, as the workload below makes them; "execute" is a round of a run.
CALLS = [
    "execute",
    "Module.load",
    "Module.set_input",
    "Module.run",
    "Module.sync",
    "Module.get_output",
    "Tensor.allocate",
    "Tensor.set_zero",
    "Tensor.copy_to",
    "Tensor.cast_to",
    "Tensor.astype",
    "Tensor.clone",
    "Tensor.to_host",
    "Tensor.numpy",
    "device_telemetry",
    "set_dvfs_mode",
]
MEMORY = ["Module.load", "Tensor.allocate", "Tensor.astype", "Tensor.clone"]
# Kind -> (keys, calls, the error or none, whether the device must be reset).
KINDS = {
    "device_lost": ("", CALLS, "DeviceError", True),
    "hang": ("timeout_s = 0.05", CALLS, "DeviceError", True),
    "out_of_memory": ("", MEMORY, "DeviceError", False),
    "load_failure": ("", ["Module.load"], "HmmFormatError", False),
    "firmware": ('version = "1.3.0"\ntimes = 1', ["Module.load"], "HmmFormatError", False),
    "reset": ("", CALLS, "DeviceError", False),
    "flaky_sync": ("", ["Module.sync"], "DeviceError", False),
    "slow": ("delay_s = 0.01", CALLS, None, False),
    "throttle": ("clock_mhz = 100", CALLS, None, False),
}

# Each case is a child of a process that has imported the runtime but not called it: variables are read by the first
# call. The first child runs without faults and leaves the answers.
MATRIX = """
    import gc, itertools, signal, time

    prefill_path, decode_path, kind, keys, calls, error_name, must_reset = sys.argv[1:]
    control = importlib.import_module(tcim.__name__ + ".dev_ctrl")
    CACHES = ["model_layers_0_self_attn_kcache_input", "model_layers_0_self_attn_vcache_input"]
    x = np.random.default_rng(0).standard_normal((1, 4, 128)).astype(np.float32)

    def set_inputs(module, rows, valid):
        module.set_input("input_1", rows)
        module.set_input("valid_length", np.array([valid], np.int32))
        module.set_input("current_length", np.array([rows.shape[1]], np.int32))

    def steps(made):
        # (call, what makes it); what one leaves in `made` others use.
        def load():
            manager = rt.WeightManager(0)
            made["prefill"] = rt.load(prefill_path, option=rt.Option(manager))
            decode = rt.load(decode_path, option=rt.Option(manager).set_dummy_tensors(CACHES))
            for name in CACHES:
                decode.set_dev_input(name, made["prefill"].get_dev_input(name))
            made["decode"] = decode

        def keep(value):
            made["answers"].append(np.array(value, np.float32))

        yield "Module.load", load
        yield "Tensor.allocate", lambda: made.update(t=rt.Tensor(made["prefill"].get_input_info("input_1")))
        yield "Tensor.set_zero", lambda: made["t"].set_zero()
        for which, rows, valid in (("prefill", x, 0), ("decode", x[:, :1], 4)):
            yield "Module.set_input", lambda: set_inputs(made[which], rows, valid)
            yield "Module.run", lambda: made[which].run()
            yield "Module.sync", lambda: made[which].sync()
            yield "Module.get_output", lambda: keep(made[which].get_output("logits").numpy())
        yield "Tensor.copy_to", lambda: made["prefill"].get_dev_input("input_1").copy_to(made["t"])
        yield "Tensor.astype", lambda: made.update(wide=made["t"].astype(np.float32))
        yield "Tensor.cast_to", lambda: made["wide"].cast_to(made["t"])
        yield "Tensor.clone", lambda: made.update(twin=made["t"].clone(True))
        yield "Tensor.to_host", lambda: keep(made["twin"].to_host(True).numpy())
        yield "Tensor.numpy", lambda: keep(made["wide"].numpy())

    def workload(made, errors):
        made["answers"] = []
        hal = control.HalDeviceFactory.create("Xh2HalBackend")
        for name, do in steps(made):
            try:
                do()
            except RuntimeError as error:
                errors.append((name, type(error), str(error)))  # not the error, whose frames hold the modules
            except KeyError:  # what an earlier step did not make
                pass
        for name, status in (
            ("device_telemetry", hal.get_mem_info(0)[0]),
            ("set_dvfs_mode", hal.set_dvfs_mode(0, control.DvfsMode.PERFORMANCE)),
        ):
            if status != 0:
                errors.append((name, rt.DeviceError, f"{status!r}, a status without a text: injected"))
        return made["answers"]

    def same(answers, expected):
        assert len(answers) == len(expected) == 4
        for answer, wanted in zip(answers, expected):
            np.testing.assert_array_equal(answer, wanted)

    def without_faults():
        errors = []
        np.savez("expected.npz", *workload({}, errors))
        assert not errors, errors

    def with_fault(call):
        with open(f"{call}.toml", "w") as file:
            file.write(f'[[fault]]\\nkind = "{kind}"\\ncall = "{call}"\\n{keys}\\n')
        os.environ["TCIM_LITE_FAULTS"] = f"{call}.toml"
        expected = list(np.load("expected.npz").values())
        made, errors = {}, []
        answers = workload(made, errors)
        if error_name == "None":
            assert not errors, errors
            same(answers, expected)
        else:
            assert errors, "the fault did nothing"
            wanted = getattr(rt, error_name)
            assert errors[0][1] is wanted and "injected" in errors[0][2], errors
            # A step that was left out may make later ones fail by themselves; not so while the device is lost.
            assert all(issubclass(each[1], wanted if must_reset == "True" else rt.TcimError) for each in errors), errors
        hal = control.HalDeviceFactory.create("Xh2HalBackend")
        if must_reset == "True":
            assert hal.get_mem_info(0)[0] == control.Status.ERR_UNDEFINED
        assert hal.ipu_reset(0) == 0
        assert hal.get_mem_info(0)[0] == 0
        assert hal.get_ipu_frequency(0)[1] >= 700
        if "decode" in made:  # what was there before the reset goes on
            for which, rows, valid, wanted in (("prefill", x, 0, expected[0]), ("decode", x[:, :1], 4, expected[1])):
                set_inputs(made[which], rows, valid)
                made[which].run(True)
                np.testing.assert_array_equal(made[which].get_output("logits").numpy(), wanted)
        errors = []
        same(workload({}, errors), expected)
        assert not errors, errors
        made.clear()
        gc.collect()
        assert hal.get_mem_info(0)[1].mem_used == 0, "memory is lost"

    def child(name, function, *arguments):
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            status = 1
            try:
                os.dup2(os.open(f"{name}.log", os.O_WRONLY | os.O_CREAT), 2)
                function(*arguments)
                status = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        for _ in range(3000):
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                break
            time.sleep(0.01)
        else:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            status = "hangs"
        if status != 0:
            with open(f"{name}.log") as log:
                print(f"{name}: {status}: {log.read()}")

    child("none", without_faults)
    for call in calls.split():
        child(call, with_fault, call)
    print("done")
"""


@each("kind", KINDS)
@seconds(300)
def test_a_fault_in_any_call_is_an_error_and_a_reset_ends_it(kit, run_script, kind):
    emulator_only("injected faults")
    kit.setenv("TCIM_LITE_FAULTS", None)
    keys, calls, error, must_reset = KINDS[kind]
    paths = kit.attention_pair
    printed = run_script(MATRIX, *paths, kind, keys, " ".join(calls), error, must_reset, seconds=280)
    assert printed == "done", printed


@each("place", ["input", "output", "weight"])
def test_one_flipped_bit_changes_one_answer_the_same_in_every_process(kit, run_script, place):
    emulator_only("injected faults")
    name = {"input": "x", "output": "y", "weight": "w"}[place]
    rules = kit.tmp_path / "rules.toml"
    rules.write_text(f'[[fault]]\nkind = "bit_flip"\n{place} = "{name}"\nseed = 5\n')
    text = """
        control = importlib.import_module(tcim.__name__ + ".dev_ctrl")

        def answer(module):
            module.set_input("x", np.ones((1, 4, 8), np.float32))
            module.run(True)
            return module.get_output("y").numpy()

        module = rt.load(sys.argv[1])
        broken = answer(module)
        assert control.HalDeviceFactory.create("Xh2HalBackend").ipu_reset(0) == 0
        np.testing.assert_array_equal(answer(module), answer(rt.load(sys.argv[1])))
        print((broken != answer(module)).any(), broken.tobytes().hex())
    """
    kit.setenv("TCIM_LITE_FAULTS", str(rules))
    first, second = (run_script(text, kit.model("linear_prefill")) for _ in range(2))
    assert first == second
    assert first.startswith("True"), first
    before = kit.model("linear_prefill").read_bytes()
    kit.setenv("TCIM_LITE_FAULTS", None)
    assert run_script(text, kit.model("linear_prefill")).startswith("False")
    assert kit.model("linear_prefill").read_bytes() == before
