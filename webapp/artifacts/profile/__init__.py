"""The page of a profiler trace, from what its reading stored.

``page`` says what is shown, ``words`` the answer, ``figures`` the plots, ``listings`` the tables, ``ranks``
which files belong together, ``change`` how two traces differ.
"""
