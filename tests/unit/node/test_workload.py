"""What a user may bring to train on."""

import math
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from neuroswarm.clock import SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.errors import ConfigError
from neuroswarm.node.workload import Workload


def test_data_of_another_type_is_refused_by_its_name():
    data: Any = [1, 2, 3]
    workload = Workload(nn.Linear(2, 2), data)
    with pytest.raises(ConfigError, match="data of type list is neither a path, a tensor"):
        workload.make_trainer(SwarmNodeConfig(), SystemClock())


def test_the_model_of_the_settings_is_built(tmp_path: Path):
    text = tmp_path / "text"
    text.write_text("a text that is long enough " * 200)
    names = {}
    for model in ("transformer", "rwkv7"):
        training = {"model": model, "dim": 64, "num_layers": 2, "context": 16}
        config = SwarmNodeConfig(training=training)
        trainer = Workload(data=text).make_trainer(config, SystemClock())
        assert math.isfinite(trainer.step().loss)
        names[model] = trainer.fragments.names
    assert names["transformer"] == ("embedding", "blocks.0", "blocks.1", "head")
    assert names["rwkv7"] == ("emb", "blocks.0", "blocks.1", "ln_out", "head")


@pytest.mark.parametrize("model", ["transformer", "rwkv7"])
def test_a_model_larger_than_any_memory_is_refused_in_one_line(model: str, tmp_path: Path):
    config = SwarmNodeConfig(training={"model": model, "dim": 64 * 2**20}, state_dir=tmp_path)
    with pytest.raises(ConfigError, match="the model does not fit into memory"):
        Workload().make_trainer(config, SystemClock())
