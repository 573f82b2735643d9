"""What a user may bring to train on."""

from typing import Any

import pytest
from torch import nn

from neuroswarm.clock import SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.errors import ConfigError
from neuroswarm.node.workload import Workload
from neuroswarm.values import NODE_ID_BYTES, NodeId


def test_data_of_another_type_is_refused_by_its_name():
    data: Any = [1, 2, 3]
    workload = Workload(nn.Linear(2, 2), data)
    with pytest.raises(ConfigError, match="data of type list is neither a path, a tensor"):
        workload.make_trainer(SwarmNodeConfig(), NodeId(bytes(NODE_ID_BYTES)), SystemClock())
