"""Every bound on what a node accepts from others, checked before memory is taken."""

from __future__ import annotations

MAX_DATAGRAM_BYTES = 1160
"""Unsealed datagram; sealed and with headers it stays under the 1232 bytes that pass everywhere."""

MAX_HEARTBEAT_BYTES = 1024
"""Body of a heartbeat; with its signature it fits into a datagram."""

NAME_BYTES = 8
"""Short name of one life of a node, or of an outer state: the first bytes of its digest."""

MAX_LOSS_NATS = 1000.0
"""Held-out loss per token that a node tells; to guess among 2**31 tokens costs 21.5."""

PIPE_WINDOW_BYTES = 256 * 1024
"""Bytes on a relayed pipe that the receiver has not asked to be followed yet, each way."""

MAX_FRAME_DATA_BYTES = 32 * 1024
MAX_BATCH_DATA_BYTES = 256 * 1024
"""Data in all frames of one message to or from a relay."""

MAX_FRAMES = 256
MAX_FRAMES_BYTES = MAX_BATCH_DATA_BYTES + 64 * MAX_FRAMES
"""One message to a relay, with what frames take besides their data."""

MAX_RELAYS = 3
"""Nodes through which an unreachable one is reached."""

MAX_PROGRESS_BYTES = 1024
"""Body of a skip or a ready."""

MAX_LIST_BYTES = 64 * 1024
"""Body of a ballot or a confirm."""

MAX_BODY_BYTES = 128 * 1024
"""Body of a contribution's header, the largest of signed statements."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""One gRPC message."""

MAX_CHUNK_BYTES = 256 * 1024
"""One piece of a stream."""

MAX_PIECE_CHUNK_BYTES = 32 * 1024
"""One message of a piece of a state; small, so that slow links show progress."""

MAX_INLINE_BYTES = 64 * 1024
"""Payload that may travel with its header."""

MAX_PUSH_MESSAGES = 64
MAX_PUSH_INLINE = 4
MAX_PUSH_PROOFS = 16
MAX_HOPS = 2
"""Hops that a pushed statement may have left; 3 hops in all."""

MAX_SET = 1024
"""Contributions in a ballot or an agreed set."""

MAX_FRAGMENTS = 1024
"""Fragments of an architecture."""

MAX_FRAGMENT_PARAMS = 2**31
MAX_STATE_PARAMS = 2**33
MAX_NAME_CHARS = 256
MAX_HOST_CHARS = 253
"""One host, or the further ones of a heartbeat together."""

MAX_HOSTS = 4
"""Hosts at which a node says that it is reached."""

MAX_HEADERS = 256
"""Headers asked for in one call."""

MAX_LINEAGE_ROUNDS = 64
MAX_SHOWN_ROUNDS = 3
"""Rounds of a lineage's answer that show their confirms: first, best supported, last."""

MAX_TRACKER_PEERS = 256
MAX_TRACKER_BODY_BYTES = 512 * 1024
MAX_PROBE_BYTES = 64 * 1024
"""Padding of a probe, and of its answer."""

MAX_PROBE_PEERS = 4
"""Nodes named in the answer to a probe."""

MAX_HEARD = 3
"""Other nodes' heartbeats in one datagram."""

MAX_RULES_BYTES = 16 * 1024
MAX_CONTROL_BODY_BYTES = 64 * 1024
"""Sealed request or answer about the rules."""

MAX_EXPELLED = 256
"""Nodes that the rules may name as expelled."""

MAX_AMENDMENTS = 4
"""Amendments that a round may decide on; an owner signs one at a time."""

MAX_AMENDMENT_BYTES = MAX_RULES_BYTES + 256
"""Body of an amendment: rules and the swarm that they are for."""

MAX_APPLIED = 16 * MAX_SET
"""Entries of the table of applied contributions."""

MAX_COUNT = 2**53
"""Counters (rounds, steps, tokens), so that they stay exact in a float64."""

MAX_DHT_CONTACT_BYTES = 512
"""Body of a contact in the DHT."""

MAX_DHT_RECORD_BYTES = 800
"""Body of a record in the DHT; signed, in a request to store it, it fits into a datagram."""

MAX_DHT_HOST_CHARS = 80
MAX_DHT_HOSTS = 4
MAX_DHT_RELAYS = 3
MAX_DHT_CONTACTS = 8
"""Contacts in one answer; as many as a key has keepers."""

MAX_DHT_TAGS = 160
"""Records that one request may name as known."""
