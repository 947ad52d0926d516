"""How much clients may send, read, have worked for and connect: Kafka's client quotas (KIP-13, 55, 124, 546, 612)."""
