"""What a failover would find if the source died now."""
