"""The terminal interface: the exchange list, the detail of an exchange, and plain lines where there is no terminal."""
