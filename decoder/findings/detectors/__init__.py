"""The detectors, by what they are about. `catalogue` lists them."""
