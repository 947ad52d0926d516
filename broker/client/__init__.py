"""An asyncio client of the Kafka protocol, for farshore's broker and Apache Kafka alike."""
