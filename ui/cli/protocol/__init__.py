"""Commands about the protocol itself."""
