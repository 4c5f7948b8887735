"""Commands that open the screen: on a capture, a proxy, in a browser, on the demonstration."""
