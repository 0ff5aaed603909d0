"""Asks a person in a Matrix room before an AI agent acts."""

__version__ = "0.1.0"
