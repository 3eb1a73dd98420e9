"""MeshHeal: networks of LLM agents that notice and route around members whose answers have become bad."""

__version__ = "0.1.0"
