"""The replicator: links, the exact offset map, topics and groups carried from site to site."""
