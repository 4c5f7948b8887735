"""The PySpark data pipeline over recordings. Importing this package does not import Spark."""

from ...errors import BarnabasError


class PipelineError(BarnabasError):
    """The pipeline cannot go on: one line for the user, with the remedy."""
