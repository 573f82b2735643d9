"""A node that does not train: what can end its run."""

from __future__ import annotations

import pytest

from neuroswarm.cli.node import gather
from neuroswarm.errors import ConfigError

PORTS = {"port": 0, "grpc_port": 0, "heartbeat_port": 0}


def test_tokens_never_end_it():
    with pytest.raises(ConfigError, match="never trains on 100 tokens"):
        gather({**PORTS, "no_training": True, "tokens": 100}, {})


@pytest.mark.parametrize("end", [{"rounds": 3}, {"minutes": 1.0}, {"until_loss": 2.0}], ids=str)
def test_rounds_minutes_and_loss_end_it(end: dict[str, float]):
    config = gather({**PORTS, "no_training": True, **end}, {})
    assert not config.run.training
    assert gather({**PORTS, "tokens": 100}, {}).run.tokens == 100
