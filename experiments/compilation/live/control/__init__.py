"""Control flow carried out at the level that a policy chooses: constructs found, put into forms, counted and timed."""
