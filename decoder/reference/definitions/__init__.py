"""Definitions of messages from elsewhere: Kafka's own files, unreleased versions that a user names, drafts of old documents."""
