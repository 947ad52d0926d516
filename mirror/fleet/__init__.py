"""The mirror's fleet: workers that share all links through etcd."""
