"""What several planners of memory moves share; nothing here executes anything.

- swapping: ``swaps``, ``layer_offload``, ``compressed_swapping``, ``density``, ``host_update``,
  ``parameter_streaming``, ``backing``, ``g10``
- recomputation: ``segments``, ``chain``, ``reversal``, ``borders``, ``rematerialize``, ``attention``,
  ``eviction``
- memory that ops use in place: ``in_place``
- places as programs: ``locations``, ``location_moves``, ``milp``, ``graph``
- addresses: ``offsets``
- parts of a batch and algorithms of convolutions: ``batch_parts``, ``convolution``
"""
