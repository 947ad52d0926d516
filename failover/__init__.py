"""Moving applications to another site: plans, the operations journal, switchover and failover."""
