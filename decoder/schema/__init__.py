"""What the protocol is: message definitions in their notation, APIs, versions and error codes."""
