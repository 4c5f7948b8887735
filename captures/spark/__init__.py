"""The PySpark data pipeline over recordings."""
