"""The broker's own answers, made by the proxy: error responses, leaders, parts of messages."""
