"""What comes before the first request of a connection: TLS, logins, and the versions of both ends."""
