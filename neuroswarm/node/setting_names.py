"""The settings that a founder's rules come from, by the rules' names.

Knows nothing of values.
"""

from __future__ import annotations

from neuroswarm.config import SwarmNodeConfig

_RENAMED = {
    "aggregation_method": "aggregation.method",
    "inner_optimizer": "training.optimizer",
    "inner_lr": "training.lr",
}


def name_setting(rule: str) -> str:
    """What somebody would set to found a swarm with such a rule; the rule's name if nothing is."""
    if rule in _RENAMED:
        return _RENAMED[rule]
    for name in ("aggregation", "diloco", "training"):
        section = SwarmNodeConfig.model_fields[name].annotation
        if rule in getattr(section, "model_fields", {}):
            return f"{name}.{rule}"
    return rule
