"""`python -m broker run ...`: the broker without the rest of farshore."""

from broker.commands import broker

broker(prog_name="python -m broker")
