"""The C accelerator of the decoder. It knows bytes and plans only; `accelerator` loads it."""
