"""Names, addresses and durations: those that docker takes, and those that it does not."""

from collections.abc import Callable

import pytest

from neuroswarm.deployment import names
from neuroswarm.errors import ConfigError

HEX = "0" * 64


@pytest.mark.parametrize(
    "image",
    [
        "neuroswarm",
        "neuroswarm:latest",
        "me/neuroswarm:0.1.0",
        "registry.lan:5000/neuroswarm:0.1.0",
        "[fd00::5]:5000/a/b:1",
        "localhost/a:1",
        "Registry/a",
        f"a@sha256:{HEX}",
        f"ghcr.io/me/a__b.c--d:1_x@sha256:{HEX}",
    ],
)
def test_images_as_docker_names_them(image: str):
    assert names.require_image(image) == image


@pytest.mark.parametrize(
    "image",
    ["", "A", "a;b", "http://a.b/c:1", "a:", "a:-1", "a//b", "a.b:99999/c", "a@sha256:00",
     "a:" + "x" * 129, "a/B", "-a"],
)  # fmt: skip
def test_what_docker_knows_as_no_image(image: str):
    with pytest.raises(ConfigError, match="no name of an image"):
        names.require_image(image)


@pytest.mark.parametrize("image", ["me/a:1", "a.b/c:latest", "localhost:5000/a:1"])
def test_images_to_push_have_a_place_and_a_tag(image: str):
    assert names.require_pushed_image(image) == image


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (None, "give --image"),
        ("a:1", "docker.io/library"),
        ("library/a:1", "docker.io/library"),
        ("docker.io/a:1", "docker.io/library"),
        ("docker.io/library/a:1", "docker.io/library"),
        ("me/a", "has no tag"),
        ("registry.lan:5000/a", "has no tag"),
        (f"me/a:1@sha256:{HEX}", "has a digest"),
    ],
)
def test_other_images_are_not_pushed(image: str | None, why: str):
    with pytest.raises(ConfigError, match=why) as caught:
        names.require_pushed_image(image)
    assert "write REGISTRY/NAME:TAG" in str(caught.value)


CHECKS: list[tuple[Callable[[str], str], list[str], list[str]]] = [
    (
        names.require_stack,
        ["neuroswarm", "a", "A-b__c1"],
        ["", "a.b", "-a", "a-", "a b", "x" * 56, "a" * 1000 + "!"],
    ),
    (names.require_secret, ["a", "token_2", "a.b-c", "x" * 64], ["", "a/b", "_a", "a-", "x" * 65]),
    (
        names.require_place,
        ["10.0.0.5", "10.0.0.5:2377", "manager.lan", "eth0", "fd00::5", "[fd00::5]:2400"],
        ["", "10.0.0.5:", "10.0.0.5:0", "10.0.0.5:99999", "10.0.0.999", "http://a", "a;b", "a/b",
         "[fd00::5", "[fd00::5]2400", "[a]:1", "fd00::5::1", "0.0.0.0"],
    ),
    (
        lambda text: names.require_host("H", text),
        ["10.0.0.5", "a.lan", "[fd00::5]"],
        ["", "a:1", "fd00::5", "[a]", "[fd00::5]:1", "http://a", "a b", "${X}"],
    ),
    (
        lambda text: names.require_duration("--delay", text),
        ["60s", "1h30m", "1.5m", "0s", "0", "500ms"],
        ["", "60", "s", "1d", "-5s", "5 s"],
    ),
    (
        lambda text: names.require_past("--since", text),
        ["10m", "2h", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31T12:00:00.5Z",
         "2026-01-31T12:00:00+01:00", "1767225600", "1767225600.5"],
        ["", "yesterday", "2026-01", "31.01.2026", "--follow"],
    ),
    (
        lambda text: names.require_number("N", text, 1, 65535),
        ["1", "7201", "65535"],
        ["", "0", "65536", "-1", "1.5", "0x10", "\u0661", "9" * 5000],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "text"), [(check, text) for check, right, _ in CHECKS for text in right]
)
def test_what_is_right_is_taken_as_it_is(check: Callable[[str], str], text: str):
    assert check(text) == text


@pytest.mark.parametrize(
    ("check", "text"), [(check, text) for check, _, wrong in CHECKS for text in wrong]
)
def test_what_is_wrong_is_named(check: Callable[[str], str], text: str):
    with pytest.raises(ConfigError) as caught:
        check(text)
    assert repr(text) in str(caught.value)
