"""The ring in shared memory through which observers hear of the traffic, without ever holding it up."""
