"""Judges a runtime by the API contract, through its public API alone. docs/conformance.md says how.

Nothing of this project is imported: this folder runs wherever it is copied, against the module that is named.
"""
