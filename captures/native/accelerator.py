"""The optional accelerator of captures (captures/native), or None: see `decoder.accelerator`."""

from ...decoder.native.accelerator import extension

native = extension("captures")
