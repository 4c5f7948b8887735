"""What errors, APIs, KIPs and settings mean, in the notation of `explain_notation`; read by `explain`."""
