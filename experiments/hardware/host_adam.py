"""How long Adam takes on a host's processors.

Source: Ren et al., ZeRO-Offload, ATC 2021, table 4: 1, 4 and 10 billion parameters took 0.22, 1.03 and 2.57 s
with the authors' vectorized kernel, 1.39, 5.71 and 14.76 s with torch's own.
"""

#: Seconds per parameter.
FUSED_ADAM = 2.57e-10
TORCH_ADAM = 1.476e-9
