"""The C accelerator of captures: packets, framing, pairing, recording. `accelerator` loads it."""
