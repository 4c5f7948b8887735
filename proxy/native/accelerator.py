"""The optional accelerator of the relay (proxy/native), or None: see `decoder.native.accelerator`."""

from ...decoder.native.accelerator import extension

native = extension("proxy")
