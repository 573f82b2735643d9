"""Keeps a node from being killed by its own torch: another process tries it on old processors.

A wheel that was built for a newer processor ends whoever imports it by SIGILL, without a word.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from neuroswarm.doctor.import_child import IMPORT_NUMPY
from neuroswarm.doctor.judge_processor import describe, is_risky, judge_torch
from neuroswarm.doctor.torch_probe import IMPORT_CHILD, TorchFacts, probe_torch
from neuroswarm.errors import ConfigError
from neuroswarm.hardware.processor import ProcessorFacts

logger = logging.getLogger(__name__)


def require_torch(processor: ProcessorFacts, *, command: Sequence[str] = IMPORT_CHILD) -> None:
    """Return if torch can be imported here, as far as another process can tell.

    Whatever else goes wrong in it (no memory, no time) is left for this one to meet and to say.

    Args:
        processor: Of this machine; one that no build is known to fail on is not tried.
        command: What to run.

    Raises:
        ConfigError: numpy or torch does not run on this processor; says which version does.

    Cost: nothing on common processors; else one more import of torch, seconds to a minute.
    """
    if not is_risky(processor):
        return
    logger.info("trying torch in a process of its own first: %s", describe(processor))
    facts = probe_torch({}, command=command)
    if not _is_unfit(facts):
        if not facts.is_whole:
            logger.warning("torch was not tried to the end: %s", facts.error or facts.killed_by)
        return
    finding = judge_torch(facts, processor)
    raise ConfigError(f"{finding.said}; processor: {describe(processor)}; {finding.fix}")


def _is_unfit(facts: TorchFacts) -> bool:
    return facts.killed_by == "SIGILL" or (facts.stage == IMPORT_NUMPY and bool(facts.error))
