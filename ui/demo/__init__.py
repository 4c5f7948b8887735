"""The demonstration: mock brokers and real clients, in processes of their own."""
