"""What at least two planners of the parallel family share: plain functions over layers and levels of a
cluster.

``operators``          each operator divided among all devices: divisions, their costs, searches over them.
``meshes``             divisions along the named axes of a mesh: layouts and the collectives that change them.
``stages``             which layers go together on which devices.
``transformers``       tensor, pipeline and data parallelism of a transformer.
``degrees``            all of these degrees at once, in closed form, and the search over them.
``gradient_exchange``  data parallelism with an exchange of gradients that presets name.
``servers``            roles and shares of parameter servers.
``judges``             who says which of several plans is best: a planner's own costs, or the simulator.
"""
