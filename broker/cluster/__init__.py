"""What all brokers of a cluster agree on: topics, partition states, registrations, producer ids."""
