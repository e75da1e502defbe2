"""Spectrograms and transforms of Fourier and back, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(12)


@pytest.mark.parametrize("quant", ["float32", "w8a8h1_sefp"])
def test_spectrogram(quant, make_model, run_here):
    """Its sums are not quantised."""
    x, window = RNG.normal(size=(2, 200)).astype(np.float32), np.hanning(33)[:-1].astype(np.float32)
    node = ("STFT", ["x", "s", "w"], ["y"], {})
    model = make_model([node], {"x": x.shape}, ["y"], {"s": np.array(24), "w": window})
    frames = np.stack([x[:, i : i + 32] * window for i in range(0, 200 - 32 + 1, 24)], axis=1)
    exact = np.fft.rfft(frames.astype(np.float64))
    got = run_here(model, {"x": x}, quant)["y"]
    np.testing.assert_allclose(got, np.stack([exact.real, exact.imag], -1), atol=1e-5 if quant == "float32" else 2e-2)


@pytest.mark.parametrize(("length", "count"), [(None, 8), (6, 6), (12, 12), (9, 9)])
def test_spectrum_and_back(length, count, make_model, run_here):
    """A length cuts or continues with zeros."""
    x = RNG.normal(size=(2, 8, 1)).astype(np.float32)
    constants = {"a": np.array(1)} | ({} if length is None else {"n": np.array(length)})
    name = "" if length is None else "n"
    nodes = [
        ("DFT", ["x", name, "a"], ["f"], {"onesided": 1}),
        ("DFT", ["x", name, "a"], ["y"], {}),
        ("DFT", ["y", "", "a"], ["z"], {"inverse": 1}),
        ("DFT", ["f", name, "a"], ["r"], {"inverse": 1, "onesided": 1}),
    ]
    model = make_model(nodes, {"x": x.shape}, ["f", "y", "z", "r"], constants, opset=20)
    got = run_here(model, {"x": x})
    exact, half = np.fft.fft(x[..., 0], length), np.fft.rfft(x[..., 0], length)
    np.testing.assert_allclose(got["y"], np.stack([exact.real, exact.imag], -1), atol=2e-6)
    np.testing.assert_allclose(got["f"], np.stack([half.real, half.imag], -1), atol=2e-6)
    signal = np.fft.ifft(exact)
    np.testing.assert_allclose(got["z"], np.stack([signal.real, signal.imag], -1), atol=2e-6)
    np.testing.assert_allclose(got["r"][..., 0], np.fft.irfft(half, count), atol=2e-6)
