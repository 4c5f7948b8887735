"""The endpoints of the control API, what they take and give, and their description (OpenAPI)."""
