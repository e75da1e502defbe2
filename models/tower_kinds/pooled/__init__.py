"""Towers that pool patches as a program says."""
