"""The fleet's store on etcd: the one place that knows `etcd3`, and grpc below it.

`etcd3` gives the messages, the stubs and the way to log in. What of it is not used, and why, stands in
docs/adr/0019-a-fleet-agrees-through-etcd.md.
"""

import os

# grpc would prepare for a child that goes on with its connections. Ours all start another program at once, and what
# grpc does in them before that can end them.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
