"""What stands between the first byte of a connection and its first request: TLS, logins, and which versions the two ends speak."""
