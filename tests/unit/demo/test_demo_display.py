"""What a demo shows, on terminals and elsewhere."""

import io
from dataclasses import replace

from rich.console import Console

from neuroswarm.demo.display import LineDisplay, LiveDisplay, PeerView, make_display

VIEW = PeerView("peer-1", "training", True, 1, "aaaa1111", 50, 2.5, 3, 1_000_000, 0)


def shown(*steps: list[PeerView]) -> list[str]:
    stream = io.StringIO()
    display = make_display(Console(file=stream, width=40))
    assert isinstance(display, LineDisplay)
    display.begin("2 peers", 60, "s")
    for views in steps:
        display.show(views, 1.0)
    display.end()
    return stream.getvalue().splitlines()


def test_one_line_a_round_once_all_have_reached_it():
    behind, ahead = VIEW, replace(VIEW, round=2, digest="bbbb2222", name="peer-2")
    lines = shown([VIEW, VIEW], [behind, ahead], [behind, ahead], [ahead, ahead])
    assert [line.partition(",")[0] for line in lines[1:]] == [
        "round 1: 2 peers",
        "round 2: 2 peers",
    ]
    assert "digest bbbb2222, 50 steps each, held-out loss 2.5000, 1.0 MB" in lines[2]


def test_differing_digests_stand_out():
    assert "DIGESTS DIFFER" in shown([VIEW, replace(VIEW, digest="cccc")])[1]


def test_hostile_and_killed_peers_do_not_hold_up_the_lines():
    hostile = replace(VIEW, is_honest=False, round=0, digest="")
    killed = replace(VIEW, state="killed", round=1)
    lines = shown([replace(VIEW, round=5), hostile, killed])
    assert lines[1].startswith("round 5: 1 peer,")


def test_terminal_gets_a_table_and_a_bar():
    stream = io.StringIO()
    display = make_display(Console(file=stream, width=120, force_terminal=True))
    assert isinstance(display, LiveDisplay)
    display.begin("2 peers", 60, "s")
    display.show([VIEW, replace(VIEW, name="peer-2", state="killed")], 30.0)
    display.say("killed peer-2")
    display.end()
    said = stream.getvalue()
    for piece in ("peer-1", "aaaa1111", "30 of 60 s", "killed peer-2"):
        assert piece in said
