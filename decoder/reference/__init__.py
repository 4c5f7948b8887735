"""Knowledge of Kafka beyond its messages: releases, clients, settings, and explanations of errors and APIs."""
