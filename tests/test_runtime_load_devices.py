"""Loading: devices, their profiles, and options of the manager."""

import gc

import pytest

import tcim_lite.runtime as rt


def test_devices_that_do_not_exist_are_refused_at_load(add_model, monkeypatch):
    with pytest.raises(rt.DeviceError, match=r"device 7 does not exist; the only device is 0 .*TCIM_LITE_DEVICE_NUM"):
        rt.load(add_model, rt.Option(7))
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "8")
    assert rt.get_device_num() == rt.get_device_num("Xh2HalBackend") == 8
    module = rt.load(add_model, rt.Option(rt.DevManager([7, 3], "xh2")))
    assert module.get_input_info("a").device_id == 7
    with pytest.raises(rt.DeviceError, match="device 8 does not exist"):
        rt.load(add_model, rt.Option(rt.DevManager([7, 8])))  # though the model needs only the first
    with pytest.raises(rt.ArgumentError, match="lists device 7 twice; every rank needs a device of its own"):
        rt.load(add_model, rt.Option(rt.DevManager([7, 3, 7])))
    other = rt.load(add_model, rt.Option(rt.DevManager((2,))))
    with pytest.raises(rt.ArgumentError, match="on device 2, the tensor on device 7"):
        other.set_input("a", module.get_dev_input("a"))
    monkeypatch.setenv("HOUMO_VISIBLE_DEVICES", "4, 6")
    assert rt.get_device_num() == 2
    assert rt.load(add_model, rt.Option(6)).get_dev_input("a").device_id == 6
    with pytest.raises(rt.DeviceError, match="the devices are 4, 6"):
        rt.load(add_model)
    monkeypatch.setenv("HOUMO_VISIBLE_DEVICES", "0,x")
    with pytest.raises(rt.DeviceError, match="comma list"):
        rt.get_device_num()


def test_device_profiles(add_model, linear_bytes, tmp_path, monkeypatch):
    profile = tmp_path / "devices.ini"
    filler = "[device]\n" * 20  # ids nobody else used in this process
    profile.write_text(f"# two cards\n{filler}[device]\nname = small\nmemory = 1K\ncores = 2\nclocks = 700\n")
    monkeypatch.setenv("TCIM_LITE_DEVICES", str(profile))
    assert rt.get_device_num() == 21
    with pytest.raises(rt.DeviceError, match=r"device 20 \(small\) is out of memory: .* of 1024"):
        rt.load(linear_bytes, rt.Option(20))
    gc.collect()
    rt.load(add_model, rt.Option(20))
    profile.write_text("[device]\nspeed = 3\n")
    with pytest.raises(rt.DeviceError, match=r"devices\.ini:2: 'speed = 3'"):
        rt.get_device_num()


def test_other_kinds_of_device_are_unsupported(add_model, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE", "tpu")
    with pytest.raises(rt.UnsupportedError, match="expected cpu or cuda"):
        rt.load(add_model)


def test_bad_manager_arguments():
    for bad in ("0", 1.0, True, [0, "1"]):
        with pytest.raises(TypeError):
            rt.DevManager(bad)
    for bad in (-1, [0, -2], []):
        with pytest.raises(ValueError):  # noqa: PT011 - the type is the contract
            rt.DevManager(bad)
    with pytest.raises(rt.UnsupportedError, match="M30"):
        rt.DevManager(0, "Xh1HdiBackend")
    with pytest.raises(ValueError, match="unknown backend"):
        rt.DevManager(0, backend_name="abc")
    assert rt.get_device_num("Xh1HdiBackend") == 0
    manager = rt.DevManager([1, 0], backend_name="Xh2aHalBackend")
    assert (manager.device_ids, manager.dev_count, rt.DevManager().verify()) == ([1, 0], 2, True)
    named = rt.DevManager(devices=[1, 0], backend_name="Xh2HalBackend")  # as the vendor's programs call both
    assert (named.device_ids, named.backend_name) == ([1, 0], "Xh2HalBackend")
    assert rt.DevManager(device_ids=[1, 0]).device_ids == [1, 0]  # as the adapter calls it
    with pytest.raises(TypeError, match="device_ids is another name of devices; give one of them"):
        rt.DevManager([1], device_ids=[0])
    with pytest.raises(TypeError):
        rt.Option("wm")
    with pytest.raises(TypeError, match="list of names"):
        rt.Option().set_dummy_tensors("a")
    with pytest.raises(TypeError, match="expected an Option"):
        rt.load("x.hmm", rt.WeightManager())


def test_option_setters_chain():
    option = rt.Option(rt.WeightManager(device=0))
    assert option.set_dummy_tensors([]).enable_host_lazy_loading(True) is option
