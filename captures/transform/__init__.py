"""Transforming captures: redacting, cutting, merging."""
