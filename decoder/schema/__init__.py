"""The protocol's definitions: messages, APIs, versions and error codes."""
