"""The flags of `neuroswarm node`; each is a setting of `config` with a shorter name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neuroswarm.cli.options import read_path

NETWORK = "Network"
TRAINING = "Training"
LORA = "Adapters (LoRA); alike on all nodes"
END = "When to end (default: never)"
SETTINGS = "Settings"


def _option(text: str, panel: str, *names: str, variable: str = "") -> Any:
    """One flag, with its variable at the end of its help."""
    shown = f"{text} (env NEUROSWARM_{variable})" if variable else text
    return typer.Option(*names, help=shown, rich_help_panel=panel, show_default=False)


def _path_option(text: str, panel: str, *, variable: str) -> Any:
    """One flag that takes a path."""
    shown = f"{text} (env NEUROSWARM_{variable})"
    return typer.Option(
        help=shown, rich_help_panel=panel, show_default=False, parser=read_path, metavar="PATH"
    )


Tracker = Annotated[
    list[str] | None,
    _option(
        "Address of any node or tracker, like http://10.0.0.5:7101 (without a port: 7100, that of "
        "`neuroswarm tracker`; nodes have 7101); may be given again.",
        NETWORK,
        variable="TRACKER",
    ),
]
Peer = Annotated[
    list[str] | None,
    _option(
        "Host of any node, like 10.0.0.5 or 10.0.0.5:9999 (its heartbeat or HTTP port), or "
        "dns://NAME:PORT for all addresses of a name; may be given again.",
        NETWORK,
        variable="PEER",
    ),
]
Port = Annotated[
    int | None,
    _option("HTTP port. Default: 7101, or the next free one.", NETWORK, variable="PORT"),
]
GrpcPort = Annotated[
    int | None,
    _option("gRPC port. Default: the HTTP port + 1000.", NETWORK, variable="GRPC_PORT"),
]
HeartbeatPort = Annotated[
    int | None,
    _option("UDP port. Default: 9999, or the next free one.", NETWORK, variable="HEARTBEAT_PORT"),
]
Host = Annotated[
    str | None,
    _option(
        "Address to listen on. Default: all of IPv4 (0.0.0.0); :: for IPv6 too.",
        NETWORK,
        variable="HOST",
    ),
]
Announce = Annotated[
    list[str] | None,
    _option(
        "Host that peers are told; may be given again. Default: this machine's addresses on the "
        "routes to the others.",
        NETWORK,
        variable="ANNOUNCE",
    ),
]
NoLan = Annotated[
    bool,
    _option(
        "Neither look for others on the local network nor be found there.",
        NETWORK,
        "--no-lan",
        variable="NETWORK_LAN=false",
    ),
]
HttpOpen = Annotated[
    bool,
    _option("Answer status to other machines too.", NETWORK, "--http-open", variable="HTTP_OPEN"),
]
MaxUpload = Annotated[
    str | None,
    _option(
        "Bytes a second to send at most, like 200kB. Default: no limit.",
        NETWORK,
        variable="MAX_UPLOAD",
    ),
]
DataCap = Annotated[
    list[str] | None,
    _option(
        "Bytes to move in a day or month at most, like 500MB/day; once more for the other. "
        "Near it the node trains on and contributes nothing.",
        NETWORK,
        variable="DATA_CAP",
    ),
]
Owner = Annotated[
    str | None,
    _option(
        "Public key of who may change a new swarm's rules (`neuroswarm owner new`).",
        NETWORK,
        variable="OWNER",
    ),
]
Name = Annotated[
    str | None,
    _option("Name of the swarm. Default: default.", TRAINING, variable="NAME"),
]
Data = Annotated[
    Path | None,
    _path_option(
        "Text file or folder, or shards of `neuroswarm data prepare`, to train on. Default: "
        "this Python's library source.",
        TRAINING,
        variable="DATA",
    ),
]
Model = Annotated[
    str | None,
    _option(
        "transformer or rwkv7, built in; hf:FOLDER, a Hugging Face causal model; or "
        "module:factory, a function of yours that makes one. Default: transformer.",
        TRAINING,
        variable="MODEL",
    ),
]
Base = Annotated[
    Path | None,
    _path_option(
        "Weights of the model to adapt: safetensors file, or folder of such files.",
        LORA,
        variable="BASE",
    ),
]
LoraRank = Annotated[
    int | None,
    _option(
        "Train adapters of this rank instead of the model. Default: 0, the model.",
        LORA,
        variable="LORA_RANK",
    ),
]
LoraAlpha = Annotated[
    float | None,
    _option(
        "Adapters count alpha / rank times. Default: twice the rank.", LORA, variable="LORA_ALPHA"
    ),
]
LoraTargets = Annotated[
    list[str] | None,
    _option(
        "Layers to adapt, like att.key or *.attention.*; may be given again. Default: all linear "
        "layers but the head.",
        LORA,
        variable="LORA_TARGETS",
    ),
]
LoraTrainA = Annotated[
    bool,
    _option(
        "Train and send both matrices, A too.", LORA, "--lora-train-a", variable="LORA_TRAIN_A"
    ),
]
LoraDropout = Annotated[
    float | None,
    _option(
        "Share of the adapters' inputs left out in a step. Default: 0.",
        LORA,
        variable="LORA_DROPOUT",
    ),
]
NoTraining = Annotated[
    bool,
    _option(
        "Serve peers, train nothing.",
        TRAINING,
        "--no-training",
        variable="RUN_TRAINING=false",
    ),
]
StateDir = Annotated[
    Path | None,
    _path_option("Folder for key and checkpoints.", TRAINING, variable="STATE_DIR"),
]
Fresh = Annotated[
    bool,
    _option("Start anew; checkpoints are put aside.", TRAINING, "--fresh", variable="FRESH"),
]
Rounds = Annotated[int | None, _option("After so many rounds.", END, variable="ROUNDS")]
Minutes = Annotated[float | None, _option("After so many minutes.", END, variable="MINUTES")]
Tokens = Annotated[int | None, _option("After training on so many tokens.", END, variable="TOKENS")]
UntilLoss = Annotated[
    float | None,
    _option("Once the held-out loss is at most this.", END, variable="UNTIL_LOSS"),
]
ConfigFile = Annotated[
    Path | None,
    _path_option("TOML file with settings.", SETTINGS, variable="CONFIG"),
]
Assignments = Annotated[
    list[str] | None,
    _option("Any setting, as section.key=value; may be given again.", SETTINGS, "--set"),
]
