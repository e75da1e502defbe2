"""Encoders of sounds: what makes rows of a prompt of them."""
