"""The user's own tables: read them, compare methods on them, fit models and predict."""
