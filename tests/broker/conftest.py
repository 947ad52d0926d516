from tests.broker.running import running_broker, running_server

__all__ = ["running_broker", "running_server"]
