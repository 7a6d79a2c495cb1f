"""Carries out recipes with torch: export, passes, backends, verification in float64, timing against eager."""

from experiments.compilation.live.runner import CompilationFailed, Measured, carry_out_live

__all__ = ["CompilationFailed", "Measured", "carry_out_live"]
