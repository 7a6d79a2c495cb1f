"""Graph substitutions.

Their algebra, verdicts, generation, matching and search (TASO, MetaFlow, Unity's algebraic part).
"""
