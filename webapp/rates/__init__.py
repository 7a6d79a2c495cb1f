"""The highest rate that policies serve, looked for by runs of an experiment that follow one another."""
