"""Every error that a caller of neuroswarm may want to catch.

Messages say what failed, the value, the limit, and what to do.
"""

from __future__ import annotations

from neuroswarm.values import NodeId


class NeuroswarmError(Exception):
    """Root of all errors raised on purpose."""


class LifecycleError(NeuroswarmError):
    """A part was started, stopped or used in a state that does not allow it."""


class ConfigError(NeuroswarmError):
    """A setting cannot be used; the message names it and the legal values."""


class DoesNotFit(ConfigError):
    """The model takes more memory than this machine has, even without training it."""


class NewerState(ConfigError):
    """What is on the disk was written by a later version; it is left as it is."""


class AdmissionError(NeuroswarmError):
    """A swarm token is missing, malformed or not the swarm's."""


class ClonedIdentity(NeuroswarmError):
    """Another live node goes on under this node's key, so that this one has to take a new one."""


class PeerError(NeuroswarmError):
    """One peer is at fault; never ends the node."""

    def __init__(self, message: str, *, peer: NodeId | None = None) -> None:
        super().__init__(message)
        self.peer = peer


class PeerUnreachable(PeerError):
    """No answer by the deadline, or no connection."""


class ProtocolViolation(PeerError):
    """A peer answered, wrongly."""


class BadSignature(ProtocolViolation):
    """A signature or seal does not verify."""


class MessageTooLarge(ProtocolViolation):
    """A size or count is above its limit."""


class SchemaMismatch(ProtocolViolation):
    """A field is missing, malformed, or does not fit the architecture."""


class NewerRules(SchemaMismatch):
    """Rules with fields or values of a later version, by which this one cannot act."""


class NonFiniteValues(SchemaMismatch):
    """A payload holds what is infinite or not a number."""


class WrongPayload(ProtocolViolation):
    """Bytes that are not those of the hash asked for, or promised."""


class StaleMessage(ProtocolViolation):
    """A replayed message, or one from a round that is over."""


class RoundError(NeuroswarmError):
    """A round cannot commit; the outer state stays as it was."""


class QuorumError(RoundError, ValueError):
    """Too few contributions for what the rule must bear."""


class CheckpointError(NeuroswarmError):
    """A checkpoint cannot be written or read."""


class CheckpointCorrupt(CheckpointError):
    """A checkpoint's bytes are not those of its manifest."""


class ComputeError(NeuroswarmError):
    """The training step failed."""


class NonFiniteLoss(ComputeError):
    """The loss is infinite or not a number."""


class OutOfMemory(ComputeError):
    """Not even the smallest piece of an inner step fits into memory."""


class DataError(NeuroswarmError):
    """There is no data to train on, or it cannot be read."""


class DemoFailed(NeuroswarmError):
    """A demo could not be carried out to its end."""


class DeployError(NeuroswarmError):
    """A docker command failed, or what it left is not what was asked for."""


class DockerUnavailable(DeployError):
    """No docker client or plugin here, no engine it reaches, or no manager of a docker swarm."""


class SystemdError(NeuroswarmError):
    """systemd refused what it was asked."""


class SystemdUnavailable(SystemdError):
    """No systemd here that answers, or no unit of that name that runs."""
