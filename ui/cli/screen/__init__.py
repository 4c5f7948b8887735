"""Commands that open the screen: on a capture, a proxy, the demonstration, or in a browser."""
