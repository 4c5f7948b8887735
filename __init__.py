"""Barnabas: a transparent man-in-the-middle for the Apache Kafka protocol.

The repository root is this package (see docs/architecture.md, "Layers"). This file stays free of
imports: pytest imports it a second time under the folder's name.
"""

__version__ = "0.1.0"
