"""What screens show: rows, counts, the capture's analysis, settings. Nothing here draws."""
