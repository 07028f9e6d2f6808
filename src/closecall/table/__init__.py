"""Read the user's own tables, compare methods on them, fit models to them, and predict."""
