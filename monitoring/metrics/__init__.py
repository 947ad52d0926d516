"""What `farshore monitor run` shows on /metrics: one collector per file, each over the newest observation.

A collector shows what was observed in the last pass, and nothing else: when a site cannot be asked, its values
disappear and `farshore_link_up` is 0. A value that stood still would be a lie.
"""
