"""One client connection: requests and responses paired into exchanges, and what both ends said of themselves."""
