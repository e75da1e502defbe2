"""Towers whose patches lie in a grid."""
