"""Tools of others: Java, jars and ZooKeeper, found or set up; by the Makefile, and where brokers need a ZooKeeper."""
