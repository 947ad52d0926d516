"""What runs on this machine for a demo or a first look: brokers and ZooKeeper as child processes."""
