"""What is wrong in a conversation, and why."""
