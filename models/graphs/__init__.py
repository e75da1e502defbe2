"""A graph under construction: its values, and the ops that models are built of."""
