"""Capsules of DLPack from a careless or hostile exporter (csrc/bindings/bind_dlpack.cpp)."""

import ctypes

import numpy as np
import pytest

import tcim_lite.runtime as rt


class DlTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", DlTensor),
    ]


class Exporter:
    """A capsule over [1, 2, 3, 4] as float32, with whatever fields a test wants."""

    def __init__(self, *, name=b"dltensor_versioned", major=1, shape=(4,), strides=None, data=True, **fields):
        self.values = np.arange(1, 5, dtype=np.float32)
        self.deleted = 0
        self.deleter = DELETER(self._delete)
        self.shape = None if shape is None else (ctypes.c_int64 * len(shape))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        tensor = DlTensor(
            data=self.values.ctypes.data if data else None,
            device_type=1,
            ndim=0 if shape is None else len(shape),
            code=2,
            bits=32,
            lanes=1,
            shape=self.shape,
            strides=self.strides,
        )
        for field, value in fields.items():
            setattr(tensor, field, value)
        self.managed = Versioned(major=major, deleter=self.deleter, tensor=tensor)
        self.name = name
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.capsule = make(ctypes.addressof(self.managed), name, None)

    def _delete(self, _):
        self.deleted += 1


def test_the_exporter_is_told_once_when_its_memory_is_free():
    exporter = Exporter()
    np.testing.assert_array_equal(rt.from_dlpack(exporter.capsule).numpy(), [1, 2, 3, 4])
    assert exporter.deleted == 1
    with pytest.raises(rt.ArgumentError, match="used before"):
        rt.from_dlpack(exporter.capsule)
    assert exporter.deleted == 1


def test_offsets_and_negative_strides_are_followed():
    exporter = Exporter(shape=(2, 2), strides=(-2, 1), byte_offset=8)
    np.testing.assert_array_equal(rt.from_dlpack(exporter.capsule).numpy(), [[3, 4], [1, 2]])


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"name": b"dltensor_v9"}, rt.ArgumentError, "a capsule named 'dltensor_v9' is none of DLPack"),
        ({"name": None}, rt.ArgumentError, "a capsule named '' is none of DLPack"),
        ({"name": b"used_dltensor"}, rt.ArgumentError, "used before"),
        ({"major": 2}, rt.UnsupportedError, r"DLPack 2\.0, expected 1\.x"),
        ({"device_type": 2, "device_id": 3}, rt.ArgumentError, r"device type 2, id 3, is not the host's.*tensor.cpu"),
        ({"lanes": 4}, rt.ArgumentError, r"32 bits and 4 lane\(s\)"),
        ({"code": 9}, rt.ArgumentError, "type code 9"),
        ({"bits": 4}, rt.ArgumentError, "with 4 bits"),
        ({"shape": None, "ndim": 1}, rt.ArgumentError, "a shape that is a null pointer"),
        ({"ndim": -1}, rt.ArgumentError, "-1 axes"),
        ({"ndim": 1 << 20}, rt.ArgumentError, "1048576 axes"),
        ({"shape": (-4,)}, rt.ArgumentError, "extent -4 of axis 0"),
        ({"shape": (1 << 40, 1 << 40)}, rt.ArgumentError, "beyond 64 bits"),
        ({"shape": (2, 2), "strides": (1 << 62, 1)}, rt.ArgumentError, "beyond 64 bits"),
        ({"shape": (1 << 33,), "strides": (1 << 33,)}, rt.ArgumentError, "beyond 64 bits"),
        ({"data": False}, rt.ArgumentError, "elements at a null pointer"),
    ],
)
def test_a_damaged_or_foreign_capsule_is_refused_and_stays_its_owners(fields, error, message):
    exporter = Exporter(**fields)
    with pytest.raises(error, match=message):
        rt.from_dlpack(exporter.capsule)
    assert exporter.deleted == 0
