"""A user's own table: read it, compare on it, fit a model to it, predict with that model."""
