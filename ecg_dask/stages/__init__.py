"""Steps as separate processes: each reads names from a `Store`, writes a name, and ends."""

from .steps import STEPS, Input, Parameter, Step

__all__ = ["STEPS", "Input", "Parameter", "Step"]
