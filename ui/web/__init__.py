"""The web application: the views of a capture or a running proxy as pages with addresses of their own."""
