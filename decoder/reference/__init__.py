"""What is known of Kafka beside its messages: releases, clients, settings, and explanations of errors and APIs."""
