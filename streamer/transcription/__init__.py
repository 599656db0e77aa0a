"""The sans-I/O core: samples, hypotheses and now in; windows and events out."""
