"""Adapters between the versions of a client and a broker: capped, pretended or translated. Frames in, steps out."""
