"""The optional accelerator of the relay (proxy/native), or None: see `decoder.accelerator`."""

from ..decoder.accelerator import extension

native = extension("proxy")
