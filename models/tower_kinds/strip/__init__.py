"""Towers whose patches lie side by side in a strip."""
