"""Commands about the Kafka protocol."""
