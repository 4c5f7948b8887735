"""Exports of captures."""
