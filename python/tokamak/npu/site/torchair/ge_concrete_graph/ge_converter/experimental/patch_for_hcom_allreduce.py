"""Importing it lets collectives be captured, which needs nothing here."""
