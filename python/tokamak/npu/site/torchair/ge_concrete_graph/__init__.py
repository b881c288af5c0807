"""Converters to GE graphs: nothing is converted here."""
