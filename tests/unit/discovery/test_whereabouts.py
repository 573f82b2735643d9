from __future__ import annotations

import logging

from neuroswarm.discovery.announce import LOOPBACK
from neuroswarm.discovery.whereabouts import Whereabouts
from neuroswarm.testing.fake_clock import FakeClock

INTERVAL_S = 5.0


class Machine:
    """A machine whose addresses a test changes, and peers that are told of it."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts
        self.clock = FakeClock()
        self.told: list[tuple[str, ...]] = []
        self.whereabouts = Whereabouts(
            self.find, clock=self.clock, interval_s=INTERVAL_S, on_change=self.tell
        )

    async def find(self) -> tuple[str, ...]:
        return self.hosts

    def tell(self) -> None:
        self.told.append(self.whereabouts.hosts)


async def test_the_peers_are_told_of_a_new_address_after_one_heartbeat(caplog):
    caplog.set_level(logging.INFO)
    machine = Machine("192.168.1.7")
    async with machine.whereabouts as whereabouts:
        assert whereabouts.hosts == ("192.168.1.7",)
        await machine.clock.advance(3 * INTERVAL_S)
        assert machine.told == []
        machine.hosts = ("10.20.0.4", "2001:db8::4")
        await machine.clock.advance(INTERVAL_S)
        assert machine.told == [("10.20.0.4", "2001:db8::4")]
        await machine.clock.advance(3 * INTERVAL_S)
    assert len(machine.told) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "this machine is at 10.20.0.4, 2001:db8::4 now, not at 192.168.1.7: telling the peers"
    ]


async def test_a_machine_without_a_route_keeps_its_last_address():
    machine = Machine("192.168.1.7")
    async with machine.whereabouts as whereabouts:
        machine.hosts = ()
        await machine.clock.advance(3 * INTERVAL_S)
        assert whereabouts.hosts == ("192.168.1.7",)
    assert machine.told == []


async def test_a_machine_that_has_only_itself_is_at_loopback_until_it_gets_an_address():
    machine = Machine()
    async with machine.whereabouts as whereabouts:
        assert whereabouts.hosts == (LOOPBACK,)
        machine.hosts = ("192.168.1.7",)
        await machine.clock.advance(INTERVAL_S)
    assert machine.told == [("192.168.1.7",)]
