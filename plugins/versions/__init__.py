"""What stands between a client's versions and a broker's: capped, pretended or translated. Frames in, steps out."""
