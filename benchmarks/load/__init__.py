"""An endpoint at saturation while versions come, bad ones come, and what computes is killed and brought back."""
