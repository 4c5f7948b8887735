"""The PySpark data pipeline over recordings. Importing this package imports no Spark."""


class PipelineError(Exception):
    """The pipeline cannot go on: one line for the user, with the remedy."""
