"""HTML pages that open anywhere: one file, no scripts, nothing from the network, light and dark, for screens and paper."""
