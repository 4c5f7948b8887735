"""The optional accelerator of captures (captures/native), or None: see `decoder.native.accelerator`."""

from ...decoder.native.accelerator import extension

native = extension("captures")
