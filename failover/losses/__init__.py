"""What a failover loses or leaves behind, and how sure that is."""
