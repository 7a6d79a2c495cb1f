"""The one large figure of a comparison: what each family shows first, and what every comparison can show.

The JSON of each is what ``plots.js`` draws.
"""
